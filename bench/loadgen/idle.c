/* Mode idle: connections that do nothing, so that their memory can be seen from outside. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "failure.h"
#include "meter.h"
#include "modes.h"

static void await_end_of_input(void)
{
    char ignored[64];
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0)
        continue;
}

void run_idle(const Options *options)
{
    size_t count = options->connections;
    Connection *connections = calloc(count, sizeof *connections);
    if (connections == NULL)
        fail("out of memory for %zu connections", count);
    Reading start = read_meters(options);
    open_connections(&options->address, 1, connections, count);
    Reading end = read_meters(options);
    Reading spent = difference(&start, &end);
    printf("{\"mode\": \"idle\", \"connections\": %zu, \"seconds\": %.6f"
           ", \"broker_cpu_seconds\": %.6f, \"own_cpu_seconds\": %.6f}\n",
           count, spent.elapsed, spent.watched_cpu, spent.own_cpu);
    fflush(stdout);
    await_end_of_input();
    close_connections(connections, count);
    free(connections);
}
