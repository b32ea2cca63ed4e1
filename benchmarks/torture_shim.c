/* A disk that fails now and then, and a clock that jumps: loaded before the C library.

   TORTURE_EIO="N PREFIX": the Nth write, sync or rename of a file below PREFIX fails with EIO.
   TORTURE_CLOCK="SECONDS": every second look at the clock is off by so many seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long n_seen, n_looks;

static int fails(const char *path) {
    const char *told = getenv("TORTURE_EIO");
    if (told == NULL) return 0;
    char *prefix;
    long wanted = strtol(told, &prefix, 10);
    if (*prefix == ' ') prefix++;
    if (strncmp(path, prefix, strlen(prefix)) != 0) return 0;
    return ++n_seen == wanted;
}

static int fails_at(int file) {
    if (getenv("TORTURE_EIO") == NULL) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return fails(path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = dlsym(RTLD_NEXT, name)

ssize_t write(int file, const void *bytes, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (fails_at(file)) { errno = EIO; return -1; }
    return real(file, bytes, n);
}

ssize_t writev(int file, const struct iovec *parts, int n) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (fails_at(file)) { errno = EIO; return -1; }
    return real(file, parts, n);
}

ssize_t pwrite64(int file, const void *bytes, size_t n, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (fails_at(file)) { errno = EIO; return -1; }
    return real(file, bytes, n, at);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    if (fails_at(file)) { errno = EIO; return -1; }
    return real(file);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (fails(to)) { errno = EIO; return -1; }
    return real(from, to);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int code = real(clock, now);
    const char *told = clock == CLOCK_REALTIME ? getenv("TORTURE_CLOCK") : NULL;
    if (told != NULL && n_looks++ % 2 == 0) now->tv_sec += atol(told);
    return code;
}
