/* Modes throughput, publish, fill and drain: publishers, consumers, or both, until all is done. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "consumer.h"
#include "failure.h"
#include "meter.h"
#include "modes.h"
#include "publisher.h"
#include "topology.h"

typedef struct {
    Load load;
    Connection control;
    Connection *connections; /* the publishers', then the consumers' */
    Publisher *publishers;
    size_t publisher_count;
    Consumer *consumers;
    size_t consumer_count;
    uint64_t to_send;
    uint64_t to_confirm;
    uint64_t to_deliver;
} Run;

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL)
        fail("out of memory");
    return memory;
}

static void set_goals(Run *run)
{
    const Options *options = run->load.options;
    uint64_t copies = options->fan_out ? options->queues : 1;
    if (run->publisher_count > 0)
        run->to_send = options->messages;
    if (options->confirm_window > 0)
        run->to_confirm = run->to_send;
    if (run->consumer_count > 0)
        run->to_deliver = options->messages * copies;
}

static void open_run(Run *run, const Options *options, size_t publishers, size_t consumers)
{
    *run = (Run){.publisher_count = publishers, .consumer_count = consumers};
    run->load = (Load){.options = options, .epoll = epoll_create1(0)};
    run->load.tallies = allocate(options->queues, sizeof(Tally));
    run->connections = allocate(publishers + consumers, sizeof(Connection));
    run->publishers = allocate(publishers, sizeof(Publisher));
    run->consumers = allocate(consumers, sizeof(Consumer));
    set_goals(run);
    open_connections(&options->address, 1, &run->control, 1);
    declare_topology(options, &run->control);
    Connection *of_consumers = run->connections + publishers;
    open_connections(&options->address, options->publish_channel, run->connections, publishers);
    open_connections(&options->address, options->consume_channel, of_consumers, consumers);
    for (size_t i = 0; i < publishers; i++)
        open_publisher(&run->publishers[i], &run->load, &run->connections[i], i);
    for (size_t i = 0; i < consumers; i++)
        open_consumer(&run->consumers[i], &run->load, &of_consumers[i], i % options->queues);
}

static void start_consumers(Run *run)
{
    for (size_t i = 0; i < run->consumer_count; i++)
        start_consumer(&run->consumers[i]);
}

static void start_publishers(Run *run)
{
    for (size_t i = 0; i < run->publisher_count; i++)
        join_loop(&run->publishers[i].endpoint);
    for (size_t i = 0; i < run->publisher_count; i++)
        start_publisher(&run->publishers[i]);
}

static bool is_done(const Run *run)
{
    return run->load.sent >= run->to_send && run->load.confirmed >= run->to_confirm &&
           run->load.delivered >= run->to_deliver;
}

static Tally expected_in(const Options *options, size_t queue)
{
    Tally tally = {0};
    for (uint64_t publisher = 0; publisher < options->publishers; publisher++) {
        uint64_t share = share_of(options, publisher);
        for (uint64_t sequence = 0; sequence < share; sequence++) {
            if (!options->fan_out && queue_of(options, publisher, sequence) != queue)
                continue;
            tally.messages++;
            tally.stamps += publisher << SEQUENCE_BITS | sequence;
        }
    }
    return tally;
}

static void verify(const Run *run)
{
    const Options *options = run->load.options;
    if (run->consumer_count == 0)
        return;
    for (size_t i = 0; i < options->queues; i++) {
        Tally expected = expected_in(options, i);
        Tally got = run->load.tallies[i];
        if (got.messages != expected.messages)
            fail_with(STATUS_WRONG, "queue %zu: %" PRIu64 " messages came of %" PRIu64, i,
                      got.messages, expected.messages);
        if (got.stamps != expected.stamps)
            fail_with(STATUS_WRONG, "queue %zu: some messages came twice, others never", i);
    }
}

static void close_run(Run *run, bool delete)
{
    if (delete)
        delete_topology(run->load.options, &run->control);
    close_connections(run->connections, run->publisher_count + run->consumer_count);
    close_connections(&run->control, 1);
    for (size_t i = 0; i < run->publisher_count; i++)
        release_publisher(&run->publishers[i]);
    for (size_t i = 0; i < run->consumer_count; i++)
        release_consumer(&run->consumers[i]);
    free(run->publishers);
    free(run->consumers);
    free(run->connections);
    free(run->load.tallies);
    close(run->load.epoll);
}

static void print_result(const Run *run, const Reading *spent)
{
    const Options *options = run->load.options;
    uint64_t moved = run->load.delivered > 0 ? run->load.delivered : run->load.sent;
    printf("{\"mode\": \"%s\", \"messages\": %" PRIu64 ", \"deliveries\": %" PRIu64
           ", \"seconds\": %.6f, \"rate\": %.1f, \"broker_cpu_seconds\": %.6f"
           ", \"own_cpu_seconds\": %.6f}\n",
           options->mode, options->messages, run->load.delivered, spent->elapsed,
           (double)moved / spent->elapsed, spent->watched_cpu, spent->own_cpu);
}

static void run_load(const Options *options, size_t publishers, size_t consumers, bool delete)
{
    Run run;
    open_run(&run, options, publishers, consumers);
    Reading start = read_meters(options);
    start_consumers(&run);
    /* A drain begins with basic.consume; what publishes begins when its consumers are ready. */
    if (publishers > 0)
        start = read_meters(options);
    start_publishers(&run);
    while (!is_done(&run))
        turn_loop(&run.load);
    for (size_t i = 0; i < run.consumer_count; i++)
        finish_consumer(&run.consumers[i]);
    Reading end = read_meters(options);
    verify(&run);
    Reading spent = difference(&start, &end);
    print_result(&run, &spent);
    close_run(&run, delete);
}

void run_throughput(const Options *options)
{
    run_load(options, options->publishers, options->consumers * options->queues, true);
}

/* Only a confirm tells that a message has arrived when nobody consumes it. */
static void need_confirms(const Options *options)
{
    if (options->confirm_window == 0)
        fail_with(STATUS_USAGE, "%s needs --confirm-window", options->mode);
}

void run_publish(const Options *options)
{
    need_confirms(options);
    run_load(options, options->publishers, 0, true);
}

void run_fill(const Options *options)
{
    need_confirms(options);
    run_load(options, options->publishers, 0, false);
}

void run_drain(const Options *options)
{
    run_load(options, 0, options->consumers * options->queues, true);
}
