/* Mode probe: an idle client that asks for little, again and again, until standard input closes.
 *
 * Each turn is a basic.qos and its answer, then a small message and its confirm. How long each
 * takes while others are busy is what an idle client waits. A client that asks every millisecond
 * and waits for a second has asked once, though it would have asked a thousand times: so a wait
 * that is longer than the pause also counts as those that would have begun during it.
 *
 * Beside the time on the clock it tells how much processor time the watched broker used during a
 * wait: on a busy machine that part is the broker's own.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "failure.h"
#include "meter.h"
#include "modes.h"
#include "ring.h"
#include "topology.h"

typedef struct {
    double *seconds;
    size_t count;
    size_t capacity;
    double cpu_max; /* the most that the broker used during one wait */
} Waits;

static void add_wait(Waits *waits, double seconds)
{
    if (waits->count == waits->capacity) {
        waits->capacity = waits->capacity > 0 ? 2 * waits->capacity : 4096;
        waits->seconds = realloc(waits->seconds, waits->capacity * sizeof *waits->seconds);
        if (waits->seconds == NULL)
            fail("out of memory for the samples");
    }
    waits->seconds[waits->count++] = seconds;
}

static void enter_wait(Waits *waits, const Reading *spent, double pause)
{
    if (spent->watched_cpu > waits->cpu_max)
        waits->cpu_max = spent->watched_cpu;
    add_wait(waits, spent->elapsed);
    for (double rest = spent->elapsed - pause; pause > 0 && rest > pause; rest -= pause)
        add_wait(waits, rest);
}

static void ask(Connection *connection)
{
    size_t frame = begin_method(&connection->out, connection->channel, BASIC_QOS);
    put_u32(&connection->out, 0);
    put_u16(&connection->out, 1);
    put_u8(&connection->out, 0);
    end_frame(&connection->out, frame);
    call(connection, BASIC_QOS_OK);
}

static void publish(Connection *connection, const Buffer *message)
{
    put_bytes(&connection->out, message->bytes, message->size);
    call(connection, BASIC_ACK);
}

static bool input_is_closed(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, 0) <= 0)
        return false;
    char ignored[64];
    return read(STDIN_FILENO, ignored, sizeof ignored) <= 0;
}

static void print_waits(const char *name, Waits *waits)
{
    sort_samples(waits->seconds, waits->count);
    printf(", \"%s_p50_us\": %.2f, \"%s_p99_us\": %.2f, \"%s_max_us\": %.2f"
           ", \"%s_cpu_max_us\": %.2f",
           name, percentile(waits->seconds, waits->count, 0.50) * 1e6,
           name, percentile(waits->seconds, waits->count, 0.99) * 1e6,
           name, waits->seconds[waits->count - 1] * 1e6, name, waits->cpu_max * 1e6);
}

void run_probe(const Options *options)
{
    Connection connection;
    char queue[NAME_SIZE];
    Buffer message = {0};
    Slot slot;
    Waits answers = {0};
    Waits confirms = {0};
    double pause = options->pause_us * 1e-6;
    open_connections(&options->address, 1, &connection, 1);
    queue_name(options, 0, queue);
    declare_queue(options, &connection, queue);
    select_confirms(&connection);
    render_publish(&message, options, connection.channel, "", queue, options->sizes[0], &slot);
    ask(&connection);
    publish(&connection, &message);
    printf("ready\n");
    fflush(stdout);

    uint64_t turns = 0;
    Reading start = read_meters(options);
    do {
        Reading before = read_meters(options);
        ask(&connection);
        Reading between = read_meters(options);
        publish(&connection, &message);
        Reading after = read_meters(options);
        Reading answered = difference(&before, &between);
        Reading confirmed = difference(&between, &after);
        enter_wait(&answers, &answered, pause);
        enter_wait(&confirms, &confirmed, pause);
        turns++;
        if (options->pause_us > 0)
            usleep(options->pause_us);
    } while (!input_is_closed());
    Reading end = read_meters(options);
    Reading spent = difference(&start, &end);

    printf("{\"mode\": \"probe\", \"messages\": %" PRIu64 ", \"seconds\": %.6f", turns,
           spent.elapsed);
    print_waits("answer", &answers);
    print_waits("confirm", &confirms);
    printf(", \"broker_cpu_seconds\": %.6f, \"own_cpu_seconds\": %.6f}\n", spent.watched_cpu,
           spent.own_cpu);
    delete_queue(&connection, queue);
    close_connections(&connection, 1);
    release(&message);
    free(answers.seconds);
    free(confirms.seconds);
}
