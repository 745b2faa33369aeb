/* Shared by the stories: evicting memory on purpose, and checks that end the program. Natively
 * every story exits with 0, too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            int story_errno = errno;                                                               \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what,           \
                    story_errno);                                                                  \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Runs one part of a story; STORY_TRACE prints its name. */
#define TELL(part)                                                                                 \
    do {                                                                                           \
        if (getenv("STORY_TRACE"))                                                                 \
            fprintf(stderr, "%s\n", #part);                                                        \
        part;                                                                                      \
    } while (0)

/* Fresh memory that may be managed. */
static inline void *fresh(size_t len) {
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* Evicts the pages of [p, p + len). Natively, without swap, it does nothing. */
static inline void evict(void *p, size_t len) {
    uintptr_t from = (uintptr_t)p & ~(PAGE - 1);
    uintptr_t to = ((uintptr_t)p + len + PAGE - 1) & ~(PAGE - 1);
    int e = errno;
    madvise((void *)from, to - from, MADV_PAGEOUT);
    errno = e;
}

/* A byte that depends on its offset. */
static inline unsigned char pattern(size_t at, unsigned seed) {
    /* Runs of 64 bytes, so that it compresses as memory does. */
    size_t x = (at >> 6) * 2654435761u + seed * 40503u;
    return (unsigned char)((x >> 7 ^ x >> 19) + (at & 3));
}

static inline void fill(unsigned char *p, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++)
        p[i] = pattern(i, seed);
}

static inline int is_filled(const unsigned char *p, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++)
        if (p[i] != pattern(i, seed)) {
            fprintf(stderr, "byte %zu of %zu differs\n", i, len);
            return 0;
        }
    return 1;
}

/* A scratch file, unlinked. */
static inline int scratch_file(void) {
    char name[] = "/tmp/storyXXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    CHECK(unlink(name) == 0);
    return fd;
}

static inline void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}
