/* How a run ends badly: one line on standard error, and a status that says which kind. */
#ifndef LOADGEN_FAILURE_H
#define LOADGEN_FAILURE_H

enum {
    STATUS_ERROR = 1,  /* the broker or the system refused something */
    STATUS_USAGE = 2,  /* the command line makes no sense */
    STATUS_STALL = 3,  /* nothing moved for too long, or the whole took too long */
    STATUS_WRONG = 4,  /* messages lost, doubled, out of order or of the wrong size */
};

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void fail_with(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the process with STATUS_STALL after so many seconds, whatever it is doing. */
void limit_run_time(unsigned seconds);

#endif
