/* What the publishers and consumers of one run share: the event loop and the counts.
 *
 * One thread serves all connections. It spends a fraction of what any broker spends per message,
 * and leaves the other processors to the broker.
 */
#ifndef LOADGEN_LOAD_H
#define LOADGEN_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "connection.h"
#include "options.h"

/* Count and sum of stamps; both right means that nothing was lost and nothing came twice. */
typedef struct {
    uint64_t messages;
    uint64_t stamps;
} Tally;

typedef struct {
    const Options *options;
    int epoll;
    bool unordered; /* do not check the order: that takes memory for each publisher and consumer */
    uint64_t sent;
    uint64_t confirmed;
    uint64_t delivered;
    Tally *tallies; /* of deliveries, one for each queue */
} Load;

/* A connection in the event loop, first member of Publisher and Consumer. */
typedef struct Endpoint Endpoint;
struct Endpoint {
    Connection *connection;
    Load *load;
    void (*on_input)(Endpoint *endpoint);
    void (*on_room)(Endpoint *endpoint); /* the socket takes more bytes */
    bool wants_room;
};

void join_loop(Endpoint *endpoint);
void want_room(Endpoint *endpoint, bool wanted);

/* Handles what happens within so many milliseconds, once; false if nothing does. */
bool turn_loop_within(Load *load, int milliseconds);

/* Handles what happens once; fails if nothing does for too long. */
void turn_loop(Load *load);

#endif
