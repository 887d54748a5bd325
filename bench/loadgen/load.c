#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>

#include "failure.h"

enum { EVENTS_PER_TURN = 64 };

static void watch(Endpoint *endpoint, int operation)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = endpoint};
    if (endpoint->wants_room)
        event.events |= EPOLLOUT;
    if (epoll_ctl(endpoint->load->epoll, operation, endpoint->connection->fd, &event) < 0)
        fail("cannot watch a socket: %s", strerror(errno));
}

void join_loop(Endpoint *endpoint)
{
    make_blocking(endpoint->connection, false);
    watch(endpoint, EPOLL_CTL_ADD);
}

void want_room(Endpoint *endpoint, bool wanted)
{
    if (endpoint->wants_room == wanted)
        return;
    endpoint->wants_room = wanted;
    watch(endpoint, EPOLL_CTL_MOD);
}

bool turn_loop_within(Load *load, int milliseconds)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int count = epoll_wait(load->epoll, events, EVENTS_PER_TURN, milliseconds);
    for (int i = 0; i < count; i++) {
        Endpoint *endpoint = events[i].data.ptr;
        /* Errors and hang-ups come out of the read as well, with their reason. */
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            endpoint->on_input(endpoint);
        if (events[i].events & EPOLLOUT)
            endpoint->on_room(endpoint);
    }
    return count > 0;
}

void turn_loop(Load *load)
{
    int patience = (int)load->options->address.stall_seconds * 1000;
    if (!turn_loop_within(load, patience))
        fail_with(STATUS_STALL,
                  "stalled with %" PRIu64 " sent, %" PRIu64 " confirmed, %" PRIu64 " delivered",
                  load->sent, load->confirmed, load->delivered);
}
