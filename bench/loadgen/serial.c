/* Mode serial: one publisher that waits for each confirm before it sends the next message.
 *
 * The time between is what a program feels that must know its message safe before it goes on.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "failure.h"
#include "meter.h"
#include "modes.h"
#include "ring.h"
#include "topology.h"

static void send_message(Connection *connection, const Batch *message)
{
    size_t sent = 0;
    while (sent < message->size)
        sent += send_some(connection, message->bytes + sent, message->size - sent);
}

static void await_confirm(Connection *connection, uint64_t tag)
{
    Frame frame = expect(connection, BASIC_ACK);
    uint64_t confirmed = get_u64(frame.payload + 4);
    if (confirmed != tag)
        fail_with(STATUS_WRONG, "message %" PRIu64 " was confirmed instead of %" PRIu64,
                  confirmed, tag);
}

static double publish_one(Connection *connection, Ring *ring, uint64_t sequence)
{
    Batch message = stamp_batch(ring, sequence, 1);
    double start = seconds_now();
    send_message(connection, &message);
    await_confirm(connection, sequence + 1);
    return seconds_now() - start;
}

static void print_result(const Options *options, double *waits, const Reading *spent)
{
    size_t count = options->messages;
    sort_samples(waits, count);
    printf("{\"mode\": \"serial\", \"messages\": %" PRIu64 ", \"seconds\": %.6f, \"rate\": %.1f"
           ", \"p50_us\": %.2f, \"p95_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f"
           ", \"broker_cpu_seconds\": %.6f, \"own_cpu_seconds\": %.6f}\n",
           options->messages, spent->elapsed, (double)count / spent->elapsed,
           percentile(waits, count, 0.50) * 1e6, percentile(waits, count, 0.95) * 1e6,
           percentile(waits, count, 0.99) * 1e6, waits[count - 1] * 1e6, spent->watched_cpu,
           spent->own_cpu);
}

void run_serial(const Options *options)
{
    Connection connection;
    Ring ring;
    double *waits = calloc(options->messages, sizeof *waits);
    if (waits == NULL)
        fail("out of memory for the samples");
    open_connections(&options->address, options->publish_channel, &connection, 1);
    declare_topology(options, &connection);
    select_confirms(&connection);
    render_ring(&ring, options, connection.channel, 0);

    Reading start = read_meters(options);
    for (uint64_t i = 0; i < options->messages; i++)
        waits[i] = publish_one(&connection, &ring, i);
    Reading end = read_meters(options);
    Reading spent = difference(&start, &end);
    print_result(options, waits, &spent);

    delete_topology(options, &connection);
    close_connections(&connection, 1);
    release_ring(&ring);
    free(waits);
}
