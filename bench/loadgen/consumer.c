#include "consumer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "failure.h"
#include "ring.h"
#include "topology.h"

static void put_ack(Consumer *consumer, bool multiple)
{
    Connection *connection = consumer->endpoint.connection;
    size_t frame = begin_method(&connection->out, connection->channel, BASIC_ACK);
    put_u64(&connection->out, consumer->tag);
    put_u8(&connection->out, multiple);
    end_frame(&connection->out, frame);
    consumer->unacked = 0;
}

static void acknowledge(Consumer *consumer)
{
    uint64_t every = consumer->endpoint.load->options->ack_every;
    if (every == 0)
        return;
    consumer->unacked++;
    if (consumer->unacked == every)
        put_ack(consumer, every > 1);
}

/* A queue is first in, first out: what one publisher sent comes in rising order, also to each of
 * several consumers that share the queue. */
static void check_message(Consumer *consumer)
{
    const Options *options = consumer->endpoint.load->options;
    uint64_t publisher = consumer->stamp >> SEQUENCE_BITS;
    uint64_t sequence = consumer->stamp & (((uint64_t)1 << SEQUENCE_BITS) - 1);
    if (publisher >= options->publishers)
        fail_with(STATUS_WRONG, "a body that no publisher sent");
    if (consumer->next_of != NULL && sequence < consumer->next_of[publisher])
        fail_with(STATUS_WRONG, "queue %zu: message %" PRIu64 " came after message %" PRIu64,
                  consumer->queue, sequence, consumer->next_of[publisher] - 1);
    if (consumer->body_size != size_of(options, sequence))
        fail_with(STATUS_WRONG, "queue %zu: message %" PRIu64 " has %" PRIu64 " bytes",
                  consumer->queue, sequence, consumer->body_size);
    if (consumer->next_of != NULL)
        consumer->next_of[publisher] = sequence + 1;
}

static void take_message(Consumer *consumer)
{
    Load *load = consumer->endpoint.load;
    check_message(consumer);
    load->tallies[consumer->queue].messages++;
    load->tallies[consumer->queue].stamps += consumer->stamp;
    load->delivered++;
    consumer->delivered++;
    acknowledge(consumer);
}

static void take_method(Consumer *consumer, const Frame *frame)
{
    if (method_of(frame) != BASIC_DELIVER)
        fail_on(frame, "deliveries");
    size_t consumer_tag_size = frame->payload[4];
    consumer->tag = get_u64(frame->payload + 5 + consumer_tag_size);
}

static void take_body(Consumer *consumer, const Frame *frame)
{
    bool is_first = consumer->body_left == consumer->body_size;
    size_t least = is_first ? sizeof consumer->stamp : 0;
    if (frame->size > consumer->body_left || frame->size < least)
        fail_with(STATUS_WRONG, "queue %zu: a body frame of %u bytes where %" PRIu64 " are due",
                  consumer->queue, frame->size, consumer->body_left);
    if (is_first)
        consumer->stamp = get_u64(frame->payload);
    consumer->body_left -= frame->size;
    if (consumer->body_left == 0)
        take_message(consumer);
}

static void take_frame(Consumer *consumer, const Frame *frame)
{
    if (frame->channel != consumer->endpoint.connection->channel)
        fail_on(frame, "deliveries on our channel");
    switch (frame->type) {
    case FRAME_METHOD:
        take_method(consumer, frame);
        break;
    case FRAME_HEADER:
        consumer->body_size = get_u64(frame->payload + 4);
        consumer->body_left = consumer->body_size;
        break;
    case FRAME_BODY:
        take_body(consumer, frame);
        break;
    default:
        fail_on(frame, "deliveries");
    }
}

/* The acknowledgements of one read travel in one write, as a client's buffer would send them. */
static void send_acks(Consumer *consumer)
{
    Buffer *out = &consumer->endpoint.connection->out;
    if (out->size == 0)
        return;
    consumer->acks_sent += send_some(consumer->endpoint.connection,
                                     out->bytes + consumer->acks_sent,
                                     out->size - consumer->acks_sent);
    bool all_sent = consumer->acks_sent == out->size;
    if (all_sent) {
        out->size = 0;
        consumer->acks_sent = 0;
    }
    want_room(&consumer->endpoint, !all_sent);
}

static void take_received(Consumer *consumer)
{
    Frame frame;
    while (next_frame(consumer->endpoint.connection, &frame))
        take_frame(consumer, &frame);
    send_acks(consumer);
}

static void on_input(Endpoint *endpoint)
{
    if (receive(endpoint->connection))
        take_received((Consumer *)endpoint);
}

static void on_room(Endpoint *endpoint)
{
    send_acks((Consumer *)endpoint);
}

void open_consumer(Consumer *consumer, Load *load, Connection *connection, size_t queue)
{
    *consumer = (Consumer){
        .endpoint = {connection, load, on_input, on_room, false},
        .queue = queue,
    };
    if (load->unordered)
        return;
    consumer->next_of = calloc(load->options->publishers, sizeof(uint64_t));
    if (consumer->next_of == NULL)
        fail("out of memory for a consumer");
}

void start_consumer(Consumer *consumer)
{
    const Options *options = consumer->endpoint.load->options;
    char queue[NAME_SIZE];
    queue_name(options, consumer->queue, queue);
    start_consuming(options, consumer->endpoint.connection, queue);
    join_loop(&consumer->endpoint);
    take_received(consumer);
}

void finish_consumer(Consumer *consumer)
{
    Connection *connection = consumer->endpoint.connection;
    make_blocking(connection, true);
    if (consumer->unacked > 0)
        put_ack(consumer, true);
    Buffer *out = &connection->out;
    while (out->size > 0)
        send_acks(consumer);
    stop_consuming(connection);
}

void release_consumer(Consumer *consumer)
{
    free(consumer->next_of);
}
