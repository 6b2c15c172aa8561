/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded by a test: the wall clock jumps back and forth by an hour, the monotonic one is true. */
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int jump(void)
{
    static __thread unsigned n;
    return n++ % 2 ? 3600 : -3600;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);
    if (id == CLOCK_REALTIME) ts->tv_sec += jump();
    return rc;
}

int gettimeofday(struct timeval *tv, void *zone)
{
    struct timespec ts;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (t) *t = ts.tv_sec;
    return ts.tv_sec;
}
