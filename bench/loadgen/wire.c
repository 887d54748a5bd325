#include "wire.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

void reserve(Buffer *buffer, size_t more)
{
    size_t needed = buffer->size + more;
    if (needed <= buffer->capacity)
        return;
    size_t capacity = needed > 2 * buffer->capacity ? needed : 2 * buffer->capacity;
    buffer->bytes = realloc(buffer->bytes, capacity);
    if (buffer->bytes == NULL)
        fail("out of memory for a buffer of %zu bytes", capacity);
    buffer->capacity = capacity;
}

void release(Buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (Buffer){0};
}

void put_bytes(Buffer *buffer, const void *bytes, size_t size)
{
    reserve(buffer, size);
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

void put_fill(Buffer *buffer, uint8_t value, size_t size)
{
    reserve(buffer, size);
    memset(buffer->bytes + buffer->size, value, size);
    buffer->size += size;
}

void put_u8(Buffer *buffer, uint8_t value)
{
    put_bytes(buffer, &value, sizeof value);
}

void put_u16(Buffer *buffer, uint16_t value)
{
    uint16_t wire = htobe16(value);
    put_bytes(buffer, &wire, sizeof wire);
}

void put_u32(Buffer *buffer, uint32_t value)
{
    uint32_t wire = htobe32(value);
    put_bytes(buffer, &wire, sizeof wire);
}

void put_u64(Buffer *buffer, uint64_t value)
{
    uint64_t wire = htobe64(value);
    put_bytes(buffer, &wire, sizeof wire);
}

void put_short_string(Buffer *buffer, const char *text)
{
    size_t size = strlen(text);
    if (size > UINT8_MAX)
        fail("'%s' is too long for a short string", text);
    put_u8(buffer, (uint8_t)size);
    put_bytes(buffer, text, size);
}

void put_long_string(Buffer *buffer, const char *text)
{
    size_t size = strlen(text);
    put_u32(buffer, (uint32_t)size);
    put_bytes(buffer, text, size);
}

uint16_t get_u16(const uint8_t *at)
{
    uint16_t wire;
    memcpy(&wire, at, sizeof wire);
    return be16toh(wire);
}

uint32_t get_u32(const uint8_t *at)
{
    uint32_t wire;
    memcpy(&wire, at, sizeof wire);
    return be32toh(wire);
}

uint64_t get_u64(const uint8_t *at)
{
    uint64_t wire;
    memcpy(&wire, at, sizeof wire);
    return be64toh(wire);
}

void set_u32(uint8_t *at, uint32_t value)
{
    uint32_t wire = htobe32(value);
    memcpy(at, &wire, sizeof wire);
}

void set_u64(uint8_t *at, uint64_t value)
{
    uint64_t wire = htobe64(value);
    memcpy(at, &wire, sizeof wire);
}

size_t begin_frame(Buffer *buffer, uint8_t type, uint16_t channel)
{
    size_t begun = buffer->size;
    put_u8(buffer, type);
    put_u16(buffer, channel);
    put_u32(buffer, 0);
    return begun;
}

size_t begin_method(Buffer *buffer, uint16_t channel, uint32_t method)
{
    size_t begun = begin_frame(buffer, FRAME_METHOD, channel);
    put_u32(buffer, method);
    return begun;
}

void end_frame(Buffer *buffer, size_t begun)
{
    size_t payload = buffer->size - begun - FRAME_PREFIX;
    set_u32(buffer->bytes + begun + 3, (uint32_t)payload);
    put_u8(buffer, FRAME_END);
}
