#include "failure.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void report(const char *format, va_list arguments)
{
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
    exit(STATUS_ERROR);
}

void fail_with(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
    exit(status);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    static const char text[] = "loadgen: the run took longer than its limit\n";
    /* Only async-signal-safe calls here; a failed write leaves the status to tell. */
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(STATUS_STALL);
}

void limit_run_time(unsigned seconds)
{
    signal(SIGALRM, on_alarm);
    alarm(seconds);
}
