/* Mode population: many clients of one queue that do little each.
 *
 * All consumers share one queue and acknowledge each message. The messages are spread evenly over
 * a time, and each travels by itself. Publishers either stay connected and publish in turn, or
 * arrive one after the other, each connecting for one message, as `amqp-publish` does in a loop
 * of a shell script.
 *
 * A line of figures is printed before the first client (mark 0), when all that stay are connected
 * (mark 1), and at equal parts of the time; the last one, when all messages have been
 * delivered, has the counts of each consumer too. All figures count from mark 0. The connection
 * that declares the queue is in none of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "consumer.h"
#include "failure.h"
#include "meter.h"
#include "modes.h"
#include "ring.h"
#include "topology.h"
#include "traffic.h"

enum { CHANNEL = 1, QUEUE = 0 };

typedef struct {
    Load load;
    Connection control;
    Connection *publishers; /* those that stay */
    Connection *consumer_connections;
    Consumer *consumers;
    Traffic of_departed; /* publishers that arrived and left */
    Buffer message;
    Slot slot;
    Reading start;
    unsigned mark;
} Population;

static size_t staying(const Options *options)
{
    return options->arriving ? 0 : options->publishers;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL)
        fail("out of memory");
    return memory;
}

static Traffic total_traffic(const Population *population)
{
    const Options *options = population->load.options;
    Traffic sum = population->of_departed;
    for (size_t i = 0; i < options->consumers; i++) {
        Traffic more = traffic_of(&population->consumer_connections[i]);
        add_traffic(&sum, &more);
    }
    for (size_t i = 0; i < staying(options); i++) {
        Traffic more = traffic_of(&population->publishers[i]);
        add_traffic(&sum, &more);
    }
    return sum;
}

static void print_figures(Population *population)
{
    const Options *options = population->load.options;
    Traffic traffic = population->mark > 0 ? total_traffic(population) : (Traffic){0};
    Reading now = read_meters(options);
    Reading spent = difference(&population->start, &now);
    printf("{\"mode\": \"population\", \"mark\": %u, \"seconds\": %.6f, \"published\": %" PRIu64
           ", \"delivered\": %" PRIu64 ", \"packets\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"broker_cpu_seconds\": %.6f, \"own_cpu_seconds\": %.6f",
           population->mark++, spent.elapsed, population->load.sent, population->load.delivered,
           traffic.packets, traffic.bytes, spent.watched_cpu, spent.own_cpu);
}

static void print_mark(Population *population)
{
    print_figures(population);
    printf("}\n");
    fflush(stdout);
}

/* The last line tells how evenly the consumers were served. */
static void print_end(Population *population)
{
    const Options *options = population->load.options;
    uint64_t fewest = options->consumers > 0 ? UINT64_MAX : 0;
    uint64_t most = 0;
    for (size_t i = 0; i < options->consumers; i++) {
        uint64_t delivered = population->consumers[i].delivered;
        fewest = delivered < fewest ? delivered : fewest;
        most = delivered > most ? delivered : most;
    }
    print_figures(population);
    printf(", \"fewest\": %" PRIu64 ", \"most\": %" PRIu64 "}\n", fewest, most);
    fflush(stdout);
}

static void prepare(Population *population, const Options *options)
{
    *population = (Population){
        .load = {.options = options, .epoll = epoll_create1(0), .unordered = true},
        .publishers = allocate(staying(options), sizeof(Connection)),
        .consumer_connections = allocate(options->consumers, sizeof(Connection)),
        .consumers = allocate(options->consumers, sizeof(Consumer)),
    };
    population->load.tallies = allocate(1, sizeof(Tally));
    char queue[NAME_SIZE];
    queue_name(options, QUEUE, queue);
    render_publish(&population->message, options, CHANNEL, "", queue, options->sizes[0],
                   &population->slot);
    open_connections(&options->address, CHANNEL, &population->control, 1);
    declare_queue(options, &population->control, queue);
    population->start = read_meters(options);
}

static void join(Population *population)
{
    const Options *options = population->load.options;
    Connection *connections = population->consumer_connections;
    open_connections(&options->address, CHANNEL, connections, options->consumers);
    for (size_t i = 0; i < options->consumers; i++) {
        open_consumer(&population->consumers[i], &population->load, &connections[i], QUEUE);
        start_consumer(&population->consumers[i]);
    }
    open_connections(&options->address, CHANNEL, population->publishers, staying(options));
}

static void send_message(Population *population, Connection *connection, uint64_t publisher)
{
    uint64_t sequence = population->load.sent / population->load.options->publishers;
    set_u64(population->message.bytes + population->slot.stamp,
            publisher << SEQUENCE_BITS | sequence);
    put_bytes(&connection->out, population->message.bytes, population->message.size);
    send_out(connection);
    population->load.sent++;
}

static void publish_next(Population *population)
{
    const Options *options = population->load.options;
    uint64_t publisher = population->load.sent % options->publishers;
    if (!options->arriving) {
        send_message(population, &population->publishers[publisher], publisher);
        return;
    }
    Connection connection;
    open_connections(&options->address, CHANNEL, &connection, 1);
    send_message(population, &connection, publisher);
    take_leave(&connection);
    Traffic traffic = traffic_of(&connection);
    add_traffic(&population->of_departed, &traffic);
    close(connection.fd);
    release(&connection.in);
    release(&connection.out);
}

static int milliseconds_until(double moment)
{
    double left = (moment - seconds_now()) * 1e3;
    return left > 0 ? (int)left + 1 : 0;
}

/* The moment of the next message; messages that are late do not delay the following ones. */
static double time_of_message(const Population *population, double begin)
{
    const Options *options = population->load.options;
    double share = (double)population->load.sent / (double)options->messages;
    return begin + share * options->spread_ms * 1e-3;
}

static double time_of_mark(const Options *options, double begin, unsigned printed)
{
    return begin + (double)(printed + 1) / options->marks * options->spread_ms * 1e-3;
}

static void run_schedule(Population *population)
{
    const Options *options = population->load.options;
    uint64_t messages = options->publishers > 0 ? options->messages : 0;
    double begin = seconds_now();
    unsigned printed = 0;
    while (population->load.sent < messages || printed < options->marks) {
        double due = time_of_mark(options, begin, printed);
        bool is_mark = printed < options->marks;
        if (population->load.sent < messages) {
            double next = time_of_message(population, begin);
            is_mark = is_mark && due <= next;
            due = is_mark ? due : next;
        }
        turn_loop_within(&population->load, milliseconds_until(due));
        if (seconds_now() < due)
            continue;
        if (is_mark) {
            print_mark(population);
            printed++;
        } else {
            publish_next(population);
        }
    }
    while (options->consumers > 0 && population->load.delivered < messages)
        turn_loop(&population->load);
}

static void verify(const Population *population)
{
    const Options *options = population->load.options;
    if (options->consumers == 0 || options->publishers == 0)
        return;
    uint64_t stamps = 0;
    for (uint64_t i = 0; i < options->messages; i++)
        stamps += i % options->publishers << SEQUENCE_BITS | i / options->publishers;
    if (population->load.tallies->messages != options->messages ||
        population->load.tallies->stamps != stamps)
        fail_with(STATUS_WRONG, "some messages came twice, others never");
}

static void close_population(Population *population)
{
    const Options *options = population->load.options;
    close_connections(population->consumer_connections, options->consumers);
    close_connections(population->publishers, staying(options));
    char queue[NAME_SIZE];
    queue_name(options, QUEUE, queue);
    delete_queue(&population->control, queue);
    close_connections(&population->control, 1);
    for (size_t i = 0; i < options->consumers; i++)
        release_consumer(&population->consumers[i]);
    free(population->consumers);
    free(population->consumer_connections);
    free(population->publishers);
    free(population->load.tallies);
    release(&population->message);
    close(population->load.epoll);
}

void run_population(const Options *options)
{
    Population population;
    Options introduced = *options;
    introduced.address.introduced = true;
    introduced.ack_every = 1;
    prepare(&population, &introduced);
    print_mark(&population);
    join(&population);
    print_mark(&population);
    run_schedule(&population);
    print_end(&population);
    verify(&population);
    close_population(&population);
}
