/* Sends its share of the messages as fast as the socket and the confirm window allow. */
#ifndef LOADGEN_PUBLISHER_H
#define LOADGEN_PUBLISHER_H

#include "load.h"
#include "ring.h"

typedef struct {
    Endpoint endpoint;
    Ring ring;
    uint64_t share;     /* messages to send in all */
    uint64_t taken;     /* of these, handed to the socket or in `unsent` */
    Batch unsent;       /* what the socket did not take yet */
    uint64_t confirmed; /* every message up to here is confirmed */
    uint8_t *settled;   /* confirmed singly beyond that; by delivery tag modulo the window */
} Publisher;

void open_publisher(Publisher *publisher, Load *load, Connection *connection, size_t index);
void start_publisher(Publisher *publisher);
void release_publisher(Publisher *publisher);

#endif
