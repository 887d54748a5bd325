/* Mode first: when the first of the messages that were left is there again.
 *
 * The moment is told on the clock of the whole machine, so that whoever started the broker can
 * subtract the moment at which it did. The message is not acknowledged: it stays where it is.
 */
#include <inttypes.h>
#include <stdio.h>

#include "failure.h"
#include "meter.h"
#include "modes.h"
#include "ring.h"
#include "topology.h"

/* Blocks until the body of the first delivery has begun; gives its sequence. */
static uint64_t await_first(Connection *connection)
{
    for (;;) {
        Frame frame;
        while (!next_frame(connection, &frame)) {
            if (!receive(connection))
                fail_with(STATUS_STALL, "no message came");
        }
        if (frame.type == FRAME_METHOD && method_of(&frame) != BASIC_DELIVER)
            fail_on(&frame, "a message");
        if (frame.type == FRAME_BODY)
            return get_u64(frame.payload) & (((uint64_t)1 << SEQUENCE_BITS) - 1);
    }
}

void run_first(const Options *options)
{
    /* More than one would be on its way while we leave. */
    Options one = *options;
    one.prefetch = 1;
    one.ack_every = 1;
    Connection connection;
    char queue[NAME_SIZE];
    queue_name(options, 0, queue);
    open_connections(&options->address, options->consume_channel, &connection, 1);
    start_consuming(&one, &connection, queue);
    uint64_t sequence = await_first(&connection);
    double moment = seconds_now();
    if (sequence != 0)
        fail_with(STATUS_WRONG, "message %" PRIu64 " came first", sequence);
    printf("{\"mode\": \"first\", \"moment\": %.6f}\n", moment);
    close_connections(&connection, 1);
}
