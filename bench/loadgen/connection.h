/* One AMQP connection with one channel on a raw socket.
 *
 * Opening, declaring and closing block, because they are outside of what is measured and read
 * best as a sequence of calls. The measured part makes the socket non-blocking and then only
 * uses receive, next_frame and send_some.
 */
#ifndef LOADGEN_CONNECTION_H
#define LOADGEN_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

typedef struct {
    const char *host;
    uint16_t port;
    unsigned stall_seconds;
    bool introduced; /* with client-properties as those of rabbitmq-c, not with an empty table */
} Address;

typedef struct {
    int fd;
    uint16_t channel;
    uint32_t frame_max;
    Buffer in;
    size_t parsed; /* bytes of `in` already handed out as frames */
    Buffer out;    /* frames under construction, or waiting for the socket */
} Connection;

typedef struct {
    uint8_t type;
    uint16_t channel;
    uint32_t size;
    const uint8_t *payload; /* points into the connection's buffer until the next receive */
} Frame;

/* Opens `count` connections and a channel on each. Groups of them walk through the handshake
 * together, so that the broker always has work while answers travel. */
void open_connections(const Address *address, uint16_t channel, Connection *all, size_t count);
void close_connections(Connection *all, size_t count);

/* Closes the channel, then the connection, and waits until the broker has closed the socket. The
 * socket itself stays open, so that its counters can be read. */
void take_leave(Connection *connection);

/* Blocking: sends what `out` holds; waits for this one method and fails on any other. */
void send_out(Connection *connection);
Frame expect(Connection *connection, uint32_t method);
Frame call(Connection *connection, uint32_t reply);

void make_blocking(Connection *connection, bool blocking);

/* Reads what has come, once. False if nothing has. */
bool receive(Connection *connection);
bool next_frame(Connection *connection, Frame *frame);

/* Sends as much as the socket takes now; returns how many bytes that was. */
size_t send_some(Connection *connection, const uint8_t *bytes, size_t size);

uint32_t method_of(const Frame *frame);
_Noreturn void fail_on(const Frame *frame, const char *while_waiting_for);

#endif
