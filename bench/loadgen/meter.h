/* Clocks: elapsed time, our own processor time, that of the broker's processes; percentiles. */
#ifndef LOADGEN_METER_H
#define LOADGEN_METER_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"

typedef struct {
    double elapsed;  /* seconds */
    double own_cpu;
    double watched_cpu;
} Reading;

double seconds_now(void);
Reading read_meters(const Options *options);
Reading difference(const Reading *from, const Reading *to);

/* Sorts the samples. */
void sort_samples(double *samples, size_t count);
double percentile(const double *sorted, size_t count, double fraction);

#endif
