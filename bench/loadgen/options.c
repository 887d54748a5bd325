#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

static const char USAGE[] =
    "usage: loadgen MODE --port PORT [options]        prints one line of JSON\n"
    "\n"
    "  throughput  publish and consume at the same time\n"
    "  ping        one message there and one back, again and again\n"
    "  publish     publish with confirms, then delete the queue with all that is in it\n"
    "  serial      one message and its confirm, again and again, then delete the queue\n"
    "  fill        publish with confirms and leave the messages in the queue\n"
    "  first       consume the first message that fill has left, and give it back\n"
    "  drain       consume what fill has left, then delete the queue\n"
    "  probe       ask for little, again and again, until standard input closes\n"
    "  idle        open connections and hold them until standard input closes\n"
    "  population  many clients of one queue, at a steady rate; prints several lines\n"
    "\n"
    "  --host ADDRESS          127.0.0.1\n"
    "  --prefix NAME           of queues and exchanges; fill and drain must agree (loadgen)\n"
    "  --messages N            100000, by all publishers together\n"
    "  --sizes A,B,…           of bodies, in turn, at least 8 bytes each (16)\n"
    "  --rich                  many properties, a new message-id for each message\n"
    "  --durable               durable queues and exchanges, persistent messages\n"
    "  --publishers N          1\n"
    "  --queues N              1; publisher i publishes to queue i modulo N\n"
    "  --consumers N           1, for each queue\n"
    "  --fan-out               each message to all queues\n"
    "  --rotate                each message to the next queue\n"
    "  --publish-channel N     1\n"
    "  --consume-channel N     1\n"
    "  --per-send N            messages per write (as many as fill 64 KiB)\n"
    "  --confirm-window N      unconfirmed messages per publisher (no confirms)\n"
    "  --prefetch N            no limit\n"
    "  --ack-every N           1: each one singly; N: multiple (auto-ack)\n"
    "  --connections N         for idle (1000)\n"
    "  --pause MICROSECONDS    for ping and probe, between round trips (0)\n"
    "  --spread MILLISECONDS   for population: time over which its messages are spread (1000)\n"
    "  --marks N               for population: lines of figures meanwhile (10)\n"
    "  --arriving              for population: each publisher connects for one message\n"
    "  --watch PID             report the processor time of this process; may be repeated\n"
    "  --stall SECONDS         give up when nothing moves for so long (20)\n"
    "  --seconds SECONDS       give up after so long (120)\n";

enum Key {
    HOST, PORT, PREFIX, MESSAGES, SIZES, RICH, DURABLE, PUBLISHERS, QUEUES, CONSUMERS, FAN_OUT,
    ROTATE, PUBLISH_CHANNEL, CONSUME_CHANNEL, PER_SEND, CONFIRM_WINDOW, PREFETCH, ACK_EVERY,
    CONNECTIONS, SPREAD, MARKS, ARRIVING, PAUSE, WATCH, STALL, SECONDS,
};

static const struct option NAMES[] = {
    {"host", required_argument, NULL, HOST},
    {"port", required_argument, NULL, PORT},
    {"prefix", required_argument, NULL, PREFIX},
    {"messages", required_argument, NULL, MESSAGES},
    {"sizes", required_argument, NULL, SIZES},
    {"rich", no_argument, NULL, RICH},
    {"durable", no_argument, NULL, DURABLE},
    {"publishers", required_argument, NULL, PUBLISHERS},
    {"queues", required_argument, NULL, QUEUES},
    {"consumers", required_argument, NULL, CONSUMERS},
    {"fan-out", no_argument, NULL, FAN_OUT},
    {"rotate", no_argument, NULL, ROTATE},
    {"publish-channel", required_argument, NULL, PUBLISH_CHANNEL},
    {"consume-channel", required_argument, NULL, CONSUME_CHANNEL},
    {"per-send", required_argument, NULL, PER_SEND},
    {"confirm-window", required_argument, NULL, CONFIRM_WINDOW},
    {"prefetch", required_argument, NULL, PREFETCH},
    {"ack-every", required_argument, NULL, ACK_EVERY},
    {"connections", required_argument, NULL, CONNECTIONS},
    {"spread", required_argument, NULL, SPREAD},
    {"marks", required_argument, NULL, MARKS},
    {"arriving", no_argument, NULL, ARRIVING},
    {"pause", required_argument, NULL, PAUSE},
    {"watch", required_argument, NULL, WATCH},
    {"stall", required_argument, NULL, STALL},
    {"seconds", required_argument, NULL, SECONDS},
    {0},
};

static _Noreturn void refuse(const char *why)
{
    fputs(USAGE, stderr);
    fail_with(STATUS_USAGE, "%s", why);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most)
        fail_with(STATUS_USAGE, "'%s' is no number from %llu to %llu", text,
                  (unsigned long long)least, (unsigned long long)most);
    return value;
}

static void parse_sizes(Options *options, char *list)
{
    options->size_count = 0;
    for (char *item = strtok(list, ","); item != NULL; item = strtok(NULL, ",")) {
        if (options->size_count == MAX_SIZES)
            refuse("too many sizes");
        /* Eight bytes hold the stamp; the upper bound fits one frame of every broker's default. */
        options->sizes[options->size_count++] = number(item, 8, 128 * 1024 - FRAME_OVERHEAD);
    }
}

static void watch(Options *options, const char *pid)
{
    if (options->watched_count == MAX_WATCHED)
        refuse("too many processes to watch");
    options->watched[options->watched_count++] = (pid_t)number(pid, 1, INT32_MAX);
}

static void apply(Options *options, int key, char *value)
{
    switch (key) {
    case HOST: options->address.host = value; break;
    case PORT: options->address.port = (uint16_t)number(value, 1, UINT16_MAX); break;
    case PREFIX: options->prefix = value; break;
    case MESSAGES: options->messages = number(value, 1, UINT32_MAX); break;
    case SIZES: parse_sizes(options, value); break;
    case RICH: options->rich = true; break;
    case DURABLE: options->durable = true; break;
    case PUBLISHERS: options->publishers = number(value, 0, 60000); break;
    case QUEUES: options->queues = number(value, 1, 1000); break;
    case CONSUMERS: options->consumers = number(value, 0, 60000); break;
    case FAN_OUT: options->fan_out = true; break;
    case ROTATE: options->rotate = true; break;
    case PUBLISH_CHANNEL: options->publish_channel = (uint16_t)number(value, 1, 2047); break;
    case CONSUME_CHANNEL: options->consume_channel = (uint16_t)number(value, 1, 2047); break;
    case PER_SEND: options->per_send = number(value, 1, 100000); break;
    case CONFIRM_WINDOW: options->confirm_window = number(value, 1, 1000000); break;
    case PREFETCH: options->prefetch = (uint16_t)number(value, 1, UINT16_MAX); break;
    case ACK_EVERY: options->ack_every = number(value, 1, UINT16_MAX); break;
    case CONNECTIONS: options->connections = number(value, 1, 60000); break;
    case SPREAD: options->spread_ms = (unsigned)number(value, 1, 3600000); break;
    case MARKS: options->marks = (unsigned)number(value, 1, 1000); break;
    case ARRIVING: options->arriving = true; break;
    case PAUSE: options->pause_us = (unsigned)number(value, 0, 1000000); break;
    case WATCH: watch(options, value); break;
    case STALL: options->address.stall_seconds = (unsigned)number(value, 1, 3600); break;
    case SECONDS: options->seconds = (unsigned)number(value, 1, 3600); break;
    default: refuse("unknown option");
    }
}

/* Combinations that would only wait for each other, or for messages that never come. */
static void check(const Options *options)
{
    if (options->address.port == 0)
        refuse("--port is missing");
    bool may_be_empty = strcmp(options->mode, "population") == 0;
    if ((options->publishers == 0 || options->consumers == 0) && !may_be_empty)
        refuse("only a population may have no publishers or no consumers");
    if (options->fan_out && options->rotate)
        refuse("--fan-out and --rotate exclude each other");
    if (options->prefetch > 0 && options->ack_every > options->prefetch)
        refuse("with --ack-every above --prefetch no acknowledgement would ever be sent");
}

Options parse_options(int argc, char **argv)
{
    if (argc < 2)
        refuse("a mode is missing");
    Options options = {
        .mode = argv[1],
        .address = {.host = "127.0.0.1", .stall_seconds = 20},
        .prefix = "loadgen",
        .messages = 100000,
        .sizes = {16},
        .size_count = 1,
        .publishers = 1,
        .queues = 1,
        .consumers = 1,
        .publish_channel = 1,
        .consume_channel = 1,
        .connections = 1000,
        .spread_ms = 1000,
        .marks = 10,
        .seconds = 120,
    };
    optind = 2;
    int key;
    while ((key = getopt_long(argc, argv, "", NAMES, NULL)) != -1)
        apply(&options, key, optarg);
    if (optind != argc)
        refuse("an argument too many");
    check(&options);
    return options;
}
