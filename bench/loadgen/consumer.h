/* Receives the messages of one queue, checks each, acknowledges as told. */
#ifndef LOADGEN_CONSUMER_H
#define LOADGEN_CONSUMER_H

#include "load.h"

typedef struct {
    Endpoint endpoint;
    size_t queue;
    uint64_t tag;       /* of the delivery being received */
    uint64_t body_size; /* as its header said */
    uint64_t body_left;
    uint64_t stamp;        /* the first eight bytes of its body */
    uint64_t unacked;      /* deliveries since the last acknowledgement */
    size_t acks_sent;      /* bytes of the connection's `out` that the socket took */
    uint64_t delivered;
    uint64_t *next_of;     /* per publisher: the least sequence that may come now; NULL if unordered */
} Consumer;

void open_consumer(Consumer *consumer, Load *load, Connection *connection, size_t queue);

/* Asks for deliveries, and handles those that came together with the answer. */
void start_consumer(Consumer *consumer);

/* Blocks until the broker has handled all acknowledgements. */
void finish_consumer(Consumer *consumer);
void release_consumer(Consumer *consumer);

#endif
