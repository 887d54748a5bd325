#include "traffic.h"

#include <errno.h>
#include <linux/tcp.h> /* not netinet/tcp.h, whose tcp_info lacks the counters */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "failure.h"

/* Ethernet 14, IPv4 20, TCP 20 and 12 of timestamps; the two SYN have 8 bytes of options more. */
enum { HEADER_BYTES = 66, SYN_EXTRA_BYTES = 8, SYN_COUNT = 2 };

Traffic traffic_of(const Connection *connection)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
        fail("cannot read the counters of a socket: %s", strerror(errno));
    uint64_t packets = (uint64_t)info.tcpi_segs_out + info.tcpi_segs_in;
    uint64_t payload = info.tcpi_bytes_sent + info.tcpi_bytes_received;
    return (Traffic){packets, payload + packets * HEADER_BYTES + SYN_COUNT * SYN_EXTRA_BYTES};
}

void add_traffic(Traffic *sum, const Traffic *more)
{
    sum->packets += more->packets;
    sum->bytes += more->bytes;
}
