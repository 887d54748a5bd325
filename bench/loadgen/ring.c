#include "ring.h"

#include <stdlib.h>

#include "failure.h"
#include "topology.h"

enum { BYTES_PER_SEND = 64 * 1024, ID_DIGITS = 16 };

/* Bits of the property flags, as the specification numbers them from the top. */
enum {
    HAS_CONTENT_TYPE = 1 << 15,
    HAS_CONTENT_ENCODING = 1 << 14,
    HAS_HEADERS = 1 << 13,
    HAS_DELIVERY_MODE = 1 << 12,
    HAS_CORRELATION_ID = 1 << 10,
    HAS_MESSAGE_ID = 1 << 7,
    HAS_TIMESTAMP = 1 << 6,
    HAS_TYPE = 1 << 5,
    HAS_APP_ID = 1 << 3,
};

/* Values of delivery-mode. */
enum { TRANSIENT = 1, PERSISTENT = 2 };

size_t size_of(const Options *options, uint64_t sequence)
{
    return options->sizes[sequence % options->size_count];
}

static void put_delivery_mode(Buffer *buffer, const Options *options)
{
    put_u8(buffer, options->durable ? PERSISTENT : TRANSIENT);
}

static void put_plain_properties(Buffer *buffer, const Options *options)
{
    put_u16(buffer, HAS_DELIVERY_MODE);
    put_delivery_mode(buffer, options);
}

static void put_headers(Buffer *buffer)
{
    Buffer table = {0};
    put_short_string(&table, "trace");
    put_u8(&table, 'S');
    put_long_string(&table, "4bf92f3577b34da6a3ce929d0e0e4736");
    put_short_string(&table, "attempt");
    put_u8(&table, 'I');
    put_u32(&table, 1);
    put_short_string(&table, "urgent");
    put_u8(&table, 't');
    put_u8(&table, 0);
    put_u32(buffer, (uint32_t)table.size);
    put_bytes(buffer, table.bytes, table.size);
    release(&table);
}

/* Returns the offset of the digits that differ from message to message. */
static size_t put_rich_properties(Buffer *buffer, const Options *options)
{
    put_u16(buffer, HAS_CONTENT_TYPE | HAS_CONTENT_ENCODING | HAS_HEADERS | HAS_DELIVERY_MODE |
                        HAS_CORRELATION_ID | HAS_MESSAGE_ID | HAS_TIMESTAMP | HAS_TYPE |
                        HAS_APP_ID);
    put_short_string(buffer, "application/json");
    put_short_string(buffer, "utf-8");
    put_headers(buffer);
    put_delivery_mode(buffer, options);
    put_short_string(buffer, "c0ffee00-1234-5678-9abc-def012345678");
    put_short_string(buffer, "00000000-0000-0000-0000000000000000");
    size_t id = buffer->size - ID_DIGITS;
    put_u64(buffer, 1700000000);
    put_short_string(buffer, "order.placed");
    put_short_string(buffer, "loadgen");
    return id;
}

void render_publish(Buffer *buffer, const Options *options, uint16_t channel,
                    const char *exchange, const char *routing_key, size_t body_size, Slot *slot)
{
    slot->start = buffer->size;
    slot->id = 0;
    size_t frame = begin_method(buffer, channel, BASIC_PUBLISH);
    put_u16(buffer, 0);
    put_short_string(buffer, exchange);
    put_short_string(buffer, routing_key);
    put_u8(buffer, 0);
    end_frame(buffer, frame);

    frame = begin_frame(buffer, FRAME_HEADER, channel);
    put_u16(buffer, BASIC_PUBLISH >> 16);
    put_u16(buffer, 0);
    put_u64(buffer, body_size);
    if (options->rich)
        slot->id = put_rich_properties(buffer, options);
    else
        put_plain_properties(buffer, options);
    end_frame(buffer, frame);

    frame = begin_frame(buffer, FRAME_BODY, channel);
    slot->stamp = buffer->size;
    put_fill(buffer, 'x', body_size);
    end_frame(buffer, frame);
}

static size_t average_size(const Options *options)
{
    size_t sum = 0;
    for (size_t i = 0; i < options->size_count; i++)
        sum += options->sizes[i];
    return sum / options->size_count;
}

/* How many messages fill one write; the frames around a small body weigh as much as the body. */
static size_t messages_per_send(const Options *options)
{
    if (options->per_send > 0)
        return options->per_send;
    size_t overhead = options->rich ? 250 : 60;
    size_t fitting = BYTES_PER_SEND / (average_size(options) + overhead);
    return fitting > 0 ? fitting : 1;
}

void render_ring(Ring *ring, const Options *options, uint16_t channel, size_t publisher)
{
    size_t routes = options->rotate ? options->queues : 1;
    size_t cycle = routes * options->size_count;
    size_t per_send = messages_per_send(options);
    *ring = (Ring){.per_send = per_send, .publisher = publisher};
    ring->count = (per_send + cycle - 1) / cycle * cycle;
    ring->slots = calloc(ring->count + 1, sizeof *ring->slots);
    if (ring->slots == NULL)
        fail("out of memory for %zu messages", ring->count);
    char exchange[NAME_SIZE];
    exchange_name(options, exchange);
    for (size_t i = 0; i < ring->count; i++) {
        char queue[NAME_SIZE];
        queue_name(options, queue_of(options, publisher, i), queue);
        render_publish(&ring->bytes, options, channel, exchange, queue, size_of(options, i),
                       &ring->slots[i]);
    }
    ring->slots[ring->count].start = ring->bytes.size;
}

void release_ring(Ring *ring)
{
    release(&ring->bytes);
    free(ring->slots);
}

static void stamp_id(uint8_t *digits, uint64_t sequence)
{
    for (int i = ID_DIGITS - 1; i >= 0; i--) {
        digits[i] = (uint8_t)"0123456789abcdef"[sequence & 15];
        sequence >>= 4;
    }
}

Batch stamp_batch(Ring *ring, uint64_t sequence, uint64_t limit)
{
    size_t first = sequence % ring->count;
    size_t messages = ring->per_send;
    if (messages > limit)
        messages = limit;
    if (messages > ring->count - first)
        messages = ring->count - first;
    for (size_t i = 0; i < messages; i++) {
        const Slot *slot = &ring->slots[first + i];
        set_u64(ring->bytes.bytes + slot->stamp,
                ring->publisher << SEQUENCE_BITS | (sequence + i));
        if (slot->id > 0)
            stamp_id(ring->bytes.bytes + slot->id, sequence + i);
    }
    size_t start = ring->slots[first].start;
    size_t end = ring->slots[first + messages].start;
    return (Batch){ring->bytes.bytes + start, end - start, messages};
}
