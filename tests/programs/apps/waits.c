// waits CALL MILLISECONDS
//
// What: fills 32 MiB, says "ready", waits by CALL (sleep, absolute, poll, ppoll, select or
// pselect), checks that it waited that long and saw no signal, and then checks its memory.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 8192 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int waits(const char *call, long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    struct timeval v = {ms / 1000, ms % 1000 * 1000};
    if (!strcmp(call, "sleep"))
        return nanosleep(&t, NULL);
    if (!strcmp(call, "absolute")) {
        struct timespec end;
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += t.tv_sec + (end.tv_nsec + t.tv_nsec) / 1000000000;
        end.tv_nsec = (end.tv_nsec + t.tv_nsec) % 1000000000;
        errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
        return errno ? -1 : 0;
    }
    if (!strcmp(call, "poll"))
        return poll(NULL, 0, ms);
    if (!strcmp(call, "ppoll"))
        return ppoll(NULL, 0, &t, NULL);
    if (!strcmp(call, "select"))
        return select(0, NULL, NULL, NULL, &v);
    if (!strcmp(call, "pselect"))
        return pselect(0, NULL, NULL, NULL, &t, NULL);
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    uint64_t *memory = malloc(PAGES * 4096L);
    for (uint64_t page = 0; page < PAGES; page++)
        for (unsigned i = 0; i < 512; i++)
            memory[page * 512 + i] = page * 31 + i % 8;
    long ms = atol(argv[2]);
    puts("ready");
    fflush(stdout);
    double begin = now();
    int ret = waits(argv[1], ms);
    int error = errno;
    double took = now() - begin;
    if (ret)
        printf("WRONG %s: %d, %s\n", argv[1], ret, strerror(error));
    else if (took < ms)
        printf("WRONG %s: %f ms\n", argv[1], took);
    for (uint64_t page = 0; page < PAGES; page++)
        for (unsigned i = 0; i < 512; i++)
            if (memory[page * 512 + i] != page * 31 + i % 8) {
                printf("WRONG page %lu\n", (unsigned long)page);
                return 1;
            }
    puts("done");
    return 0;
}
