#include "publisher.h"

#include <inttypes.h>
#include <stdlib.h>

#include "failure.h"
#include "topology.h"

static uint64_t window(const Publisher *publisher)
{
    return publisher->endpoint.load->options->confirm_window;
}

/* How many messages may be sent now. */
static uint64_t allowance(const Publisher *publisher)
{
    uint64_t left = publisher->share - publisher->taken;
    if (window(publisher) == 0)
        return left;
    uint64_t unconfirmed = publisher->taken - publisher->confirmed;
    uint64_t room = window(publisher) - unconfirmed;
    return left < room ? left : room;
}

/* One write at most, so that consumers get their turn between two. */
static void send_batch(Publisher *publisher)
{
    Batch *unsent = &publisher->unsent;
    if (unsent->size == 0 && allowance(publisher) > 0) {
        *unsent = stamp_batch(&publisher->ring, publisher->taken, allowance(publisher));
        publisher->taken += unsent->messages;
    }
    if (unsent->size > 0) {
        size_t sent = send_some(publisher->endpoint.connection, unsent->bytes, unsent->size);
        unsent->bytes += sent;
        unsent->size -= sent;
        if (unsent->size == 0)
            publisher->endpoint.load->sent += unsent->messages;
    }
    want_room(&publisher->endpoint, unsent->size > 0 || allowance(publisher) > 0);
}

static void advance_over_settled(Publisher *publisher)
{
    while (publisher->confirmed < publisher->taken) {
        uint8_t *settled = &publisher->settled[(publisher->confirmed + 1) % window(publisher)];
        if (!*settled)
            return;
        *settled = 0;
        publisher->confirmed++;
    }
}

static void confirm_one(Publisher *publisher, uint64_t tag)
{
    uint8_t *settled = &publisher->settled[tag % window(publisher)];
    if (tag <= publisher->confirmed || *settled)
        fail_with(STATUS_WRONG, "message %" PRIu64 " was confirmed twice", tag);
    *settled = 1;
}

static void confirm_up_to(Publisher *publisher, uint64_t tag)
{
    while (publisher->confirmed < tag) {
        publisher->confirmed++;
        publisher->settled[publisher->confirmed % window(publisher)] = 0;
    }
}

static void take_confirm(Publisher *publisher, const Frame *frame)
{
    if (frame->type != FRAME_METHOD || method_of(frame) != BASIC_ACK || window(publisher) == 0)
        fail_on(frame, "confirms");
    uint64_t tag = get_u64(frame->payload + 4);
    bool multiple = frame->payload[12] & 1;
    if (tag > publisher->taken)
        fail_with(STATUS_WRONG, "message %" PRIu64 " was confirmed before it was sent", tag);
    uint64_t before = publisher->confirmed;
    if (multiple)
        confirm_up_to(publisher, tag);
    else
        confirm_one(publisher, tag);
    advance_over_settled(publisher);
    publisher->endpoint.load->confirmed += publisher->confirmed - before;
}

static void on_input(Endpoint *endpoint)
{
    Publisher *publisher = (Publisher *)endpoint;
    if (!receive(endpoint->connection))
        return;
    Frame frame;
    while (next_frame(endpoint->connection, &frame))
        take_confirm(publisher, &frame);
    send_batch(publisher);
}

static void on_room(Endpoint *endpoint)
{
    send_batch((Publisher *)endpoint);
}

void open_publisher(Publisher *publisher, Load *load, Connection *connection, size_t index)
{
    *publisher = (Publisher){
        .endpoint = {connection, load, on_input, on_room, false},
        .share = share_of(load->options, index),
    };
    render_ring(&publisher->ring, load->options, connection->channel, index);
    if (window(publisher) == 0)
        return;
    publisher->settled = calloc(window(publisher), 1);
    if (publisher->settled == NULL)
        fail("out of memory for a confirm window");
    select_confirms(connection);
}

void start_publisher(Publisher *publisher)
{
    send_batch(publisher);
}

void release_publisher(Publisher *publisher)
{
    release_ring(&publisher->ring);
    free(publisher->settled);
}
