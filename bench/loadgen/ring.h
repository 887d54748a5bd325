/* Publishes rendered once and sent again and again.
 *
 * A publisher must cost less than the broker it drives, so nothing is encoded while it runs: the
 * ring holds enough messages for one write and for every combination of route and body size, and
 * a turn only stamps the sequence numbers into the places that change.
 *
 *   body        | publisher u16 | sequence u48 | filling |
 *   message-id  "00000000-0000-0000-" and the sequence as sixteen hexadecimal digits
 */
#ifndef LOADGEN_RING_H
#define LOADGEN_RING_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "wire.h"

typedef struct {
    size_t start; /* offset of the message's method frame */
    size_t stamp; /* offset of the eight bytes that open its body */
    size_t id;    /* offset of the digits of its message-id; 0 if it has none */
} Slot;

typedef struct {
    Buffer bytes;
    Slot *slots; /* one more than `count`: the last one only marks the end */
    size_t count;
    size_t per_send;
    uint64_t publisher;
} Ring;

typedef struct {
    const uint8_t *bytes;
    size_t size;
    size_t messages;
} Batch;

enum { SEQUENCE_BITS = 48 };

void render_ring(Ring *ring, const Options *options, uint16_t channel, size_t publisher);
void release_ring(Ring *ring);

/* The next messages from `sequence` on, at most `limit` and at most one write. */
Batch stamp_batch(Ring *ring, uint64_t sequence, uint64_t limit);

size_t size_of(const Options *options, uint64_t sequence);

/* A queue and a routing key are the same thing here, as with the default exchange. */
void render_publish(Buffer *buffer, const Options *options, uint16_t channel,
                    const char *exchange, const char *routing_key, size_t body_size, Slot *slot);

#endif
