/* Mode ping: a request through one queue, the answer through another, one at a time.
 *
 * Both ends are in one thread: it waits for the request, answers, waits for the answer. A second
 * thread would only add its own wake-ups to the time of the broker's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "failure.h"
#include "meter.h"
#include "modes.h"
#include "ring.h"
#include "topology.h"

typedef struct {
    Connection *connection;
    char queue[NAME_SIZE]; /* where it receives */
    Buffer message;        /* what it sends to the other's queue */
} End;

static void open_end(const Options *options, End *end, Connection *connection, size_t queue,
                     size_t other_queue)
{
    end->connection = connection;
    queue_name(options, queue, end->queue);
    declare_queue(options, connection, end->queue);
    start_consuming(options, connection, end->queue);
    char other[NAME_SIZE];
    queue_name(options, other_queue, other);
    end->message = (Buffer){0};
    Slot slot;
    render_publish(&end->message, options, connection->channel, "", other, options->sizes[0],
                   &slot);
}

static void send_message(End *end)
{
    size_t sent = 0;
    while (sent < end->message.size)
        sent += send_some(end->connection, end->message.bytes + sent, end->message.size - sent);
}

/* Blocks until a whole body has come. */
static void await_message(End *end, size_t body_size)
{
    size_t received = 0;
    while (received < body_size) {
        Frame frame;
        if (!next_frame(end->connection, &frame)) {
            if (!receive(end->connection))
                fail_with(STATUS_STALL, "no message came to queue %s", end->queue);
            continue;
        }
        if (frame.type == FRAME_METHOD && method_of(&frame) != BASIC_DELIVER)
            fail_on(&frame, "a message");
        if (frame.type == FRAME_BODY)
            received += frame.size;
    }
}

static double round_trip(End *here, End *there, size_t body_size)
{
    double start = seconds_now();
    send_message(here);
    await_message(there, body_size);
    send_message(there);
    await_message(here, body_size);
    return seconds_now() - start;
}

static void print_result(const Options *options, double *trips, const Reading *spent)
{
    size_t count = options->messages;
    sort_samples(trips, count);
    printf("{\"mode\": \"ping\", \"messages\": %" PRIu64 ", \"seconds\": %.6f, \"rate\": %.1f"
           ", \"p50_us\": %.2f, \"p95_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f"
           ", \"broker_cpu_seconds\": %.6f, \"own_cpu_seconds\": %.6f}\n",
           options->messages, spent->elapsed, (double)count / spent->elapsed,
           percentile(trips, count, 0.50) * 1e6, percentile(trips, count, 0.95) * 1e6,
           percentile(trips, count, 0.99) * 1e6, trips[count - 1] * 1e6, spent->watched_cpu,
           spent->own_cpu);
}

void run_ping(const Options *options)
{
    Connection connections[2];
    End here;
    End there;
    double *trips = calloc(options->messages, sizeof *trips);
    if (trips == NULL)
        fail("out of memory for the samples");
    open_connections(&options->address, 1, connections, 2);
    open_end(options, &here, &connections[0], 0, 1);
    open_end(options, &there, &connections[1], 1, 0);

    Reading start = read_meters(options);
    for (uint64_t i = 0; i < options->messages; i++) {
        trips[i] = round_trip(&here, &there, options->sizes[0]);
        if (options->pause_us > 0)
            usleep(options->pause_us);
    }
    Reading end = read_meters(options);
    Reading spent = difference(&start, &end);
    print_result(options, trips, &spent);

    delete_queue(here.connection, here.queue);
    delete_queue(there.connection, there.queue);
    close_connections(connections, 2);
    release(&here.message);
    release(&there.message);
    free(trips);
}
