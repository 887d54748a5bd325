/* A load generator for AMQP 0-9-1 brokers on raw sockets.
 *
 * It has to be much cheaper per message than any broker, or a benchmark would measure the load
 * generator: no client library, messages rendered once (ring.h), large reads and writes, one
 * thread. It checks order, size and number of what it receives all the same, because a fast
 * broker that loses messages is not fast.
 *
 * Reading order: options.h, throughput.c, publisher.c, consumer.c, connection.c.
 */
#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "modes.h"

static const struct {
    const char *name;
    void (*run)(const Options *options);
} MODES[] = {
    {"throughput", run_throughput},
    {"publish", run_publish},
    {"serial", run_serial},
    {"fill", run_fill},
    {"first", run_first},
    {"drain", run_drain},
    {"ping", run_ping},
    {"probe", run_probe},
    {"idle", run_idle},
    {"population", run_population},
};

int main(int argc, char **argv)
{
    Options options = parse_options(argc, argv);
    limit_run_time(options.seconds);
    for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++) {
        if (strcmp(options.mode, MODES[i].name) == 0) {
            MODES[i].run(&options);
            return 0;
        }
    }
    fail_with(STATUS_USAGE, "unknown mode '%s'", options.mode);
}
