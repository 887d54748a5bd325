#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "failure.h"

/* Large reads, or the load generator pays more for system calls than the broker for messages. */
enum { READ_SIZE = 256 * 1024 };

/* Well below the usual listen backlog of 128, so that no connection attempt is dropped. */
enum { GROUP = 64 };

static const char PROTOCOL_HEADER[8] = {'A', 'M', 'Q', 'P', 0, 0, 9, 1};
static const char PLAIN_GUEST[12] = "\0guest\0guest";

static void connect_socket(Connection *connection, const Address *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    if (inet_pton(AF_INET, address->host, &to.sin_addr) != 1)
        fail("'%s' is not an IPv4 address", address->host);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0)
        fail("cannot open a socket: %s", strerror(errno));
    if (connect(connection->fd, (struct sockaddr *)&to, sizeof to) < 0)
        fail("cannot connect to %s:%u: %s", address->host, address->port, strerror(errno));
    int on = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct timeval patience = {.tv_sec = address->stall_seconds};
    setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

static void put_property(Buffer *table, const char *name, const char *value)
{
    put_short_string(table, name);
    put_u8(table, 'S');
    put_long_string(table, value);
}

static void put_table(Buffer *buffer, const Buffer *table)
{
    put_u32(buffer, (uint32_t)table->size);
    put_bytes(buffer, table->bytes, table->size);
}

static void put_capability(Buffer *table, const char *name)
{
    put_short_string(table, name);
    put_u8(table, 't');
    put_u8(table, 1);
}

/* Those of rabbitmq-c 0.10, the library of Debian's amqp-publish and amqp-consume. */
static void put_client_properties(Buffer *buffer)
{
    Buffer properties = {0};
    Buffer capabilities = {0};
    put_property(&properties, "product", "rabbitmq-c");
    put_property(&properties, "version", "0.10.0");
    put_property(&properties, "platform", "Linux");
    put_property(&properties, "copyright",
                 "Copyright (c) 2007-2014 VMWare Inc, Tony Garnock-Jones, and Alan Antonuk.");
    put_property(&properties, "information", "See https://github.com/alanxz/rabbitmq-c");
    put_capability(&capabilities, "authentication_failure_close");
    put_capability(&capabilities, "consumer_cancel_notify");
    put_short_string(&properties, "capabilities");
    put_u8(&properties, 'F');
    put_table(&properties, &capabilities);
    put_table(buffer, &properties);
    release(&capabilities);
    release(&properties);
}

static void put_start_ok(Connection *connection, bool introduced)
{
    size_t frame = begin_method(&connection->out, 0, CONNECTION_START_OK);
    if (introduced)
        put_client_properties(&connection->out);
    else
        put_u32(&connection->out, 0); /* client-properties: an empty table */
    put_short_string(&connection->out, "PLAIN");
    put_u32(&connection->out, sizeof PLAIN_GUEST);
    put_bytes(&connection->out, PLAIN_GUEST, sizeof PLAIN_GUEST);
    put_short_string(&connection->out, "en_US");
    end_frame(&connection->out, frame);
}

static void put_tune_ok(Connection *connection, const Frame *tune)
{
    uint16_t channel_max = get_u16(tune->payload + 4);
    connection->frame_max = get_u32(tune->payload + 6);
    size_t frame = begin_method(&connection->out, 0, CONNECTION_TUNE_OK);
    put_u16(&connection->out, channel_max);
    put_u32(&connection->out, connection->frame_max);
    put_u16(&connection->out, 0); /* no heartbeats: idle connections must stay idle */
    end_frame(&connection->out, frame);
}

static void put_open(Connection *connection)
{
    size_t frame = begin_method(&connection->out, 0, CONNECTION_OPEN);
    put_short_string(&connection->out, "/");
    put_short_string(&connection->out, "");
    put_u8(&connection->out, 0);
    end_frame(&connection->out, frame);
}

static void put_channel_open(Connection *connection)
{
    size_t frame = begin_method(&connection->out, connection->channel, CHANNEL_OPEN);
    put_short_string(&connection->out, "");
    end_frame(&connection->out, frame);
}

static void open_group(const Address *address, uint16_t channel, Connection *group, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        group[i] = (Connection){.channel = channel};
        connect_socket(&group[i], address);
        put_bytes(&group[i].out, PROTOCOL_HEADER, sizeof PROTOCOL_HEADER);
        send_out(&group[i]);
    }
    for (size_t i = 0; i < count; i++) {
        expect(&group[i], CONNECTION_START);
        put_start_ok(&group[i], address->introduced);
        send_out(&group[i]);
    }
    for (size_t i = 0; i < count; i++) {
        Frame tune = expect(&group[i], CONNECTION_TUNE);
        put_tune_ok(&group[i], &tune);
        put_open(&group[i]);
        send_out(&group[i]);
    }
    for (size_t i = 0; i < count; i++) {
        expect(&group[i], CONNECTION_OPEN_OK);
        put_channel_open(&group[i]);
        send_out(&group[i]);
    }
    for (size_t i = 0; i < count; i++) {
        expect(&group[i], CHANNEL_OPEN_OK);
        release(&group[i].out);
        release(&group[i].in);
        group[i].parsed = 0;
    }
}

void open_connections(const Address *address, uint16_t channel, Connection *all, size_t count)
{
    for (size_t done = 0; done < count; done += GROUP) {
        size_t size = count - done < GROUP ? count - done : GROUP;
        open_group(address, channel, all + done, size);
    }
}

static void put_close(Connection *connection, uint16_t channel, uint32_t method)
{
    size_t frame = begin_method(&connection->out, channel, method);
    put_u16(&connection->out, 200);
    put_short_string(&connection->out, "done");
    put_u32(&connection->out, 0); /* no method caused it */
    end_frame(&connection->out, frame);
}

void take_leave(Connection *connection)
{
    make_blocking(connection, true);
    put_close(connection, connection->channel, CHANNEL_CLOSE);
    call(connection, CHANNEL_CLOSE_OK);
    put_close(connection, 0, CONNECTION_CLOSE);
    call(connection, CONNECTION_CLOSE_OK);
    shutdown(connection->fd, SHUT_WR);
    uint8_t rest[64];
    while (recv(connection->fd, rest, sizeof rest, 0) > 0)
        continue;
}

static void close_group(Connection *group, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        make_blocking(&group[i], true);
        put_close(&group[i], 0, CONNECTION_CLOSE);
        send_out(&group[i]);
    }
    for (size_t i = 0; i < count; i++) {
        expect(&group[i], CONNECTION_CLOSE_OK);
        close(group[i].fd);
        release(&group[i].in);
        release(&group[i].out);
    }
}

void close_connections(Connection *all, size_t count)
{
    for (size_t done = 0; done < count; done += GROUP) {
        size_t size = count - done < GROUP ? count - done : GROUP;
        close_group(all + done, size);
    }
}

void make_blocking(Connection *connection, bool blocking)
{
    int flags = fcntl(connection->fd, F_GETFL);
    flags = blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
    fcntl(connection->fd, F_SETFL, flags);
}

size_t send_some(Connection *connection, const uint8_t *bytes, size_t size)
{
    ssize_t sent = send(connection->fd, bytes, size, MSG_NOSIGNAL);
    if (sent >= 0)
        return (size_t)sent;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    fail("the broker closed a connection while we sent: %s", strerror(errno));
}

void send_out(Connection *connection)
{
    size_t sent = 0;
    while (sent < connection->out.size)
        sent += send_some(connection, connection->out.bytes + sent, connection->out.size - sent);
    connection->out.size = 0;
}

/* Moves the unfinished frame, usually a small one, to the front of the buffer. */
static void discard_parsed(Connection *connection)
{
    Buffer *in = &connection->in;
    if (connection->parsed == 0)
        return;
    memmove(in->bytes, in->bytes + connection->parsed, in->size - connection->parsed);
    in->size -= connection->parsed;
    connection->parsed = 0;
}

bool receive(Connection *connection)
{
    Buffer *in = &connection->in;
    discard_parsed(connection);
    reserve(in, READ_SIZE);
    ssize_t got = recv(connection->fd, in->bytes + in->size, in->capacity - in->size, 0);
    if (got == 0)
        fail("the broker closed a connection");
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got < 0)
        fail("cannot receive: %s", strerror(errno));
    in->size += (size_t)got;
    return true;
}

bool next_frame(Connection *connection, Frame *frame)
{
    const uint8_t *at = connection->in.bytes + connection->parsed;
    size_t left = connection->in.size - connection->parsed;
    if (left < FRAME_OVERHEAD)
        return false;
    uint32_t size = get_u32(at + 3);
    if (left < (size_t)size + FRAME_OVERHEAD)
        return false;
    if (at[FRAME_PREFIX + size] != FRAME_END)
        fail_with(STATUS_WRONG, "a frame of %u bytes does not end with 0xCE", size);
    frame->type = at[0];
    frame->channel = get_u16(at + 1);
    frame->size = size;
    frame->payload = at + FRAME_PREFIX;
    connection->parsed += size + FRAME_OVERHEAD;
    return true;
}

uint32_t method_of(const Frame *frame)
{
    return get_u32(frame->payload);
}

Frame expect(Connection *connection, uint32_t method)
{
    for (;;) {
        Frame frame;
        while (!next_frame(connection, &frame)) {
            if (!receive(connection))
                fail_with(STATUS_STALL, "no answer to wait for %u.%u", method >> 16,
                          method & 0xFFFF);
        }
        if (frame.type == FRAME_HEARTBEAT)
            continue;
        if (frame.type != FRAME_METHOD || method_of(&frame) != method)
            fail_on(&frame, "an answer");
        return frame;
    }
}

Frame call(Connection *connection, uint32_t reply)
{
    send_out(connection);
    return expect(connection, reply);
}

void fail_on(const Frame *frame, const char *while_waiting_for)
{
    if (frame->type != FRAME_METHOD)
        fail("a frame of type %u while waiting for %s", frame->type, while_waiting_for);
    uint32_t method = method_of(frame);
    if (method == CONNECTION_CLOSE || method == CHANNEL_CLOSE) {
        const uint8_t *text = frame->payload + 6;
        fail("the broker closed with %u: %.*s", get_u16(frame->payload + 4), text[0], text + 1);
    }
    fail("method %u.%u while waiting for %s", method >> 16, method & 0xFFFF, while_waiting_for);
}
