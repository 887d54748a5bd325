#include "meter.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "failure.h"

static double read_clock(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        return -1;
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double seconds_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* What each watched process had used when it was last looked at: a helper of the broker may end. */
static double last_known[MAX_WATCHED];

/* The same utime + stime that /proc/PID/stat shows, all threads, ended ones too, but in
 * nanoseconds: the ticks of 10 ms there are too coarse for runs of a third of a second. */
static double cpu_of(const Options *options, size_t index)
{
    clockid_t clock;
    int error = clock_getcpuclockid(options->watched[index], &clock);
    double seconds = error == 0 ? read_clock(clock) : -1;
    if (seconds >= 0)
        last_known[index] = seconds;
    else if (index == 0) /* the broker itself */
        fail("cannot read the processor time of process %d", (int)options->watched[index]);
    return last_known[index];
}

Reading read_meters(const Options *options)
{
    Reading reading = {
        .elapsed = seconds_now(),
        .own_cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID),
    };
    for (size_t i = 0; i < options->watched_count; i++)
        reading.watched_cpu += cpu_of(options, i);
    return reading;
}

Reading difference(const Reading *from, const Reading *to)
{
    return (Reading){
        .elapsed = to->elapsed - from->elapsed,
        .own_cpu = to->own_cpu - from->own_cpu,
        .watched_cpu = to->watched_cpu - from->watched_cpu,
    };
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void sort_samples(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, compare);
}

/* Nearest rank. */
double percentile(const double *sorted, size_t count, double fraction)
{
    size_t rank = (size_t)(fraction * (double)count);
    return sorted[rank < count ? rank : count - 1];
}
