/* The exchange and queues of a run, and which message goes to which queue. */
#ifndef LOADGEN_TOPOLOGY_H
#define LOADGEN_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "connection.h"
#include "options.h"

enum { NAME_SIZE = 200 };

void queue_name(const Options *options, size_t queue, char name[NAME_SIZE]);
void exchange_name(const Options *options, char name[NAME_SIZE]);
size_t queue_of(const Options *options, size_t publisher, uint64_t sequence);

void declare_topology(const Options *options, Connection *control);
void delete_topology(const Options *options, Connection *control);

void declare_queue(const Options *options, Connection *connection, const char *name);
void delete_queue(Connection *connection, const char *name);
void start_consuming(const Options *options, Connection *connection, const char *queue);
void stop_consuming(Connection *connection);
void select_confirms(Connection *connection);

/* How many messages publisher `publisher` of this run sends. */
uint64_t share_of(const Options *options, size_t publisher);

#endif
