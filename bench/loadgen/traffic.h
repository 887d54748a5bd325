/* Packets and bytes of a connection as a capture on the loopback interface would show them.
 *
 * The kernel counts the segments of each socket in both directions, so other traffic of the
 * machine is not included, and no capture takes processor time. */
#ifndef LOADGEN_TRAFFIC_H
#define LOADGEN_TRAFFIC_H

#include <stdint.h>

#include "connection.h"

typedef struct {
    uint64_t packets; /* with those that only acknowledge, and those that open and close */
    uint64_t bytes;   /* with all headers */
} Traffic;

Traffic traffic_of(const Connection *connection);
void add_traffic(Traffic *sum, const Traffic *more);

#endif
