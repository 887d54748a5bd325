#include "topology.h"

#include <stdio.h>

/* Chosen by us, so that a cancel needs no memory of what the broker answered. */
static const char CONSUMER_TAG[] = "loadgen";

enum { NO_ACK = 2 };  /* the second bit of basic.consume's flags */
enum { DURABLE = 2 }; /* the second bit of queue.declare's, and of exchange.declare's */

void queue_name(const Options *options, size_t queue, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%s.%zu", options->prefix, queue);
}

void exchange_name(const Options *options, char name[NAME_SIZE])
{
    if (options->fan_out)
        snprintf(name, NAME_SIZE, "%s.fan-out", options->prefix);
    else
        name[0] = '\0';
}

size_t queue_of(const Options *options, size_t publisher, uint64_t sequence)
{
    return (options->rotate ? sequence : publisher) % options->queues;
}

uint64_t share_of(const Options *options, size_t publisher)
{
    uint64_t share = options->messages / options->publishers;
    return share + (publisher < options->messages % options->publishers);
}

static uint8_t declaration(const Options *options)
{
    return options->durable ? DURABLE : 0;
}

static void declare_fan_out(const Options *options, Connection *control, const char *name)
{
    size_t frame = begin_method(&control->out, control->channel, EXCHANGE_DECLARE);
    put_u16(&control->out, 0);
    put_short_string(&control->out, name);
    put_short_string(&control->out, "fanout");
    put_u8(&control->out, declaration(options));
    put_u32(&control->out, 0);
    end_frame(&control->out, frame);
    call(control, EXCHANGE_DECLARE_OK);
}

static void delete_exchange(Connection *control, const char *name)
{
    size_t frame = begin_method(&control->out, control->channel, EXCHANGE_DELETE);
    put_u16(&control->out, 0);
    put_short_string(&control->out, name);
    put_u8(&control->out, 0);
    end_frame(&control->out, frame);
    call(control, EXCHANGE_DELETE_OK);
}

static void bind_queue(Connection *control, const char *queue, const char *exchange)
{
    size_t frame = begin_method(&control->out, control->channel, QUEUE_BIND);
    put_u16(&control->out, 0);
    put_short_string(&control->out, queue);
    put_short_string(&control->out, exchange);
    put_short_string(&control->out, "");
    put_u8(&control->out, 0);
    put_u32(&control->out, 0);
    end_frame(&control->out, frame);
    call(control, QUEUE_BIND_OK);
}

void declare_queue(const Options *options, Connection *connection, const char *name)
{
    size_t frame = begin_method(&connection->out, connection->channel, QUEUE_DECLARE);
    put_u16(&connection->out, 0);
    put_short_string(&connection->out, name);
    put_u8(&connection->out, declaration(options));
    put_u32(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, QUEUE_DECLARE_OK);
}

void delete_queue(Connection *connection, const char *name)
{
    size_t frame = begin_method(&connection->out, connection->channel, QUEUE_DELETE);
    put_u16(&connection->out, 0);
    put_short_string(&connection->out, name);
    put_u8(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, QUEUE_DELETE_OK);
}

void declare_topology(const Options *options, Connection *control)
{
    char exchange[NAME_SIZE];
    exchange_name(options, exchange);
    if (options->fan_out)
        declare_fan_out(options, control, exchange);
    for (size_t i = 0; i < options->queues; i++) {
        char queue[NAME_SIZE];
        queue_name(options, i, queue);
        declare_queue(options, control, queue);
        if (options->fan_out)
            bind_queue(control, queue, exchange);
    }
}

void delete_topology(const Options *options, Connection *control)
{
    for (size_t i = 0; i < options->queues; i++) {
        char queue[NAME_SIZE];
        queue_name(options, i, queue);
        delete_queue(control, queue);
    }
    char exchange[NAME_SIZE];
    exchange_name(options, exchange);
    if (options->fan_out)
        delete_exchange(control, exchange);
}

static void set_prefetch(Connection *connection, uint16_t prefetch)
{
    size_t frame = begin_method(&connection->out, connection->channel, BASIC_QOS);
    put_u32(&connection->out, 0);
    put_u16(&connection->out, prefetch);
    put_u8(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, BASIC_QOS_OK);
}

void start_consuming(const Options *options, Connection *connection, const char *queue)
{
    if (options->prefetch > 0)
        set_prefetch(connection, options->prefetch);
    size_t frame = begin_method(&connection->out, connection->channel, BASIC_CONSUME);
    put_u16(&connection->out, 0);
    put_short_string(&connection->out, queue);
    put_short_string(&connection->out, CONSUMER_TAG);
    put_u8(&connection->out, options->ack_every == 0 ? NO_ACK : 0);
    put_u32(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, BASIC_CONSUME_OK);
}

void stop_consuming(Connection *connection)
{
    size_t frame = begin_method(&connection->out, connection->channel, BASIC_CANCEL);
    put_short_string(&connection->out, CONSUMER_TAG);
    put_u8(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, BASIC_CANCEL_OK);
}

void select_confirms(Connection *connection)
{
    size_t frame = begin_method(&connection->out, connection->channel, CONFIRM_SELECT);
    put_u8(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, CONFIRM_SELECT_OK);
}
