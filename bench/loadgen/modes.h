/* What a run can be. Each prints one line of JSON, population several, and returns when all is
 * closed again. */
#ifndef LOADGEN_MODES_H
#define LOADGEN_MODES_H

#include "options.h"

void run_throughput(const Options *options);
void run_publish(const Options *options);
void run_serial(const Options *options);
void run_fill(const Options *options);
void run_first(const Options *options);
void run_drain(const Options *options);
void run_ping(const Options *options);
void run_probe(const Options *options);
void run_idle(const Options *options);
void run_population(const Options *options);

#endif
