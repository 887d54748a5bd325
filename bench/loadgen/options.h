/* The command line. */
#ifndef LOADGEN_OPTIONS_H
#define LOADGEN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "connection.h"

enum { MAX_SIZES = 16, MAX_WATCHED = 32 };

typedef struct {
    const char *mode;
    Address address;
    const char *prefix; /* of the names of queues and exchanges */

    uint64_t messages; /* published by all publishers together */
    size_t sizes[MAX_SIZES];
    size_t size_count; /* message i has sizes[i % size_count] bytes */
    bool rich;         /* all usual properties, with a message-id of its own */
    bool durable;      /* queues and exchanges outlast the broker, messages are persistent */

    size_t publishers;
    size_t queues;
    size_t consumers; /* per queue, each on its own connection */
    bool fan_out;     /* every message goes to every queue */
    bool rotate;      /* every message goes to the next queue */
    uint16_t publish_channel;
    uint16_t consume_channel;

    size_t per_send;       /* messages per write; 0: as many as fill 64 KiB */
    size_t confirm_window; /* unconfirmed messages a publisher may have out; 0: no confirms */
    uint16_t prefetch;
    uint64_t ack_every; /* 0: auto-ack; 1: each message singly; k: every k-th, with multiple */

    size_t connections; /* in mode idle */
    unsigned spread_ms; /* time over which mode population spreads its messages */
    unsigned marks;     /* lines of figures that it prints meanwhile */
    bool arriving;      /* each publisher comes for one message and leaves */
    unsigned pause_us;  /* between round trips in modes ping and probe */

    pid_t watched[MAX_WATCHED]; /* processes whose processor time is reported */
    size_t watched_count;
    unsigned seconds; /* the whole run may take no longer */
} Options;

Options parse_options(int argc, char **argv);

#endif
