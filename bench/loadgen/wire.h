/* The bytes of AMQP 0-9-1: a growing buffer, big-endian fields, frames.
 *
 *   frame            | type u8 | channel u16 | size u32 | payload | 0xCE |
 *   method payload   | class u16 | method u16 | arguments |
 *   header payload   | class u16 | weight u16 | body size u64 | flags u16 | properties |
 */
#ifndef LOADGEN_WIRE_H
#define LOADGEN_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8, FRAME_END = 0xCE };

/* What surrounds a payload: seven bytes before it, the end mark after it. */
enum { FRAME_PREFIX = 7, FRAME_OVERHEAD = 8 };

#define METHOD(class_id, method_id) ((uint32_t)(class_id) << 16 | (method_id))

enum {
    CONNECTION_START = METHOD(10, 10),
    CONNECTION_START_OK = METHOD(10, 11),
    CONNECTION_TUNE = METHOD(10, 30),
    CONNECTION_TUNE_OK = METHOD(10, 31),
    CONNECTION_OPEN = METHOD(10, 40),
    CONNECTION_OPEN_OK = METHOD(10, 41),
    CONNECTION_CLOSE = METHOD(10, 50),
    CONNECTION_CLOSE_OK = METHOD(10, 51),
    CHANNEL_OPEN = METHOD(20, 10),
    CHANNEL_OPEN_OK = METHOD(20, 11),
    CHANNEL_CLOSE = METHOD(20, 40),
    CHANNEL_CLOSE_OK = METHOD(20, 41),
    EXCHANGE_DECLARE = METHOD(40, 10),
    EXCHANGE_DECLARE_OK = METHOD(40, 11),
    EXCHANGE_DELETE = METHOD(40, 20),
    EXCHANGE_DELETE_OK = METHOD(40, 21),
    QUEUE_DECLARE = METHOD(50, 10),
    QUEUE_DECLARE_OK = METHOD(50, 11),
    QUEUE_BIND = METHOD(50, 20),
    QUEUE_BIND_OK = METHOD(50, 21),
    QUEUE_DELETE = METHOD(50, 40),
    QUEUE_DELETE_OK = METHOD(50, 41),
    BASIC_QOS = METHOD(60, 10),
    BASIC_QOS_OK = METHOD(60, 11),
    BASIC_CONSUME = METHOD(60, 20),
    BASIC_CONSUME_OK = METHOD(60, 21),
    BASIC_CANCEL = METHOD(60, 30),
    BASIC_CANCEL_OK = METHOD(60, 31),
    BASIC_PUBLISH = METHOD(60, 40),
    BASIC_DELIVER = METHOD(60, 60),
    BASIC_ACK = METHOD(60, 80),
    CONFIRM_SELECT = METHOD(85, 10),
    CONFIRM_SELECT_OK = METHOD(85, 11),
};

typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
} Buffer;

void reserve(Buffer *buffer, size_t more);
void release(Buffer *buffer);

void put_u8(Buffer *buffer, uint8_t value);
void put_u16(Buffer *buffer, uint16_t value);
void put_u32(Buffer *buffer, uint32_t value);
void put_u64(Buffer *buffer, uint64_t value);
void put_bytes(Buffer *buffer, const void *bytes, size_t size);
void put_fill(Buffer *buffer, uint8_t value, size_t size);
void put_short_string(Buffer *buffer, const char *text);
void put_long_string(Buffer *buffer, const char *text);

uint16_t get_u16(const uint8_t *at);
uint32_t get_u32(const uint8_t *at);
uint64_t get_u64(const uint8_t *at);
void set_u32(uint8_t *at, uint32_t value);
void set_u64(uint8_t *at, uint64_t value);

/* A frame is begun with its size unknown; end_frame writes the size into the place begun. */
size_t begin_frame(Buffer *buffer, uint8_t type, uint16_t channel);
size_t begin_method(Buffer *buffer, uint16_t channel, uint32_t method);
void end_frame(Buffer *buffer, size_t begun);

#endif
