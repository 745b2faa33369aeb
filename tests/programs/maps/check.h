/* Shared by the story programs, which run natively and under uzswap. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define CHECK(cond)                                                                  \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: failed: %s (errno %d %s)\n", __FILE__, __LINE__, \
                    #cond, errno, strerror(errno));                                  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)
#define FAILS(call, error)      \
    do {                        \
        errno = 0;              \
        CHECK((call));          \
        CHECK(errno == (error)); \
    } while (0)

static inline uint8_t *map(size_t len, int prot) {
    uint8_t *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
static inline uint8_t *rw(size_t len) { return map(len, PROT_READ | PROT_WRITE); }

/* Every page carries its number and a stamp, at its start and its end. */
static inline void stamp(uint8_t *p, size_t len, uint64_t seed) {
    for (size_t i = 0; i < len; i += PAGE) {
        *(uint64_t *)(p + i) = seed + i;
        *(uint64_t *)(p + i + PAGE - 8) = ~(seed + i);
    }
}
static inline void has_stamp(const uint8_t *p, size_t len, uint64_t seed, int line) {
    for (size_t i = 0; i < len; i += PAGE)
        if (*(uint64_t *)(p + i) != seed + i || *(uint64_t *)(p + i + PAGE - 8) != ~(seed + i)) {
            fprintf(stderr, "line %d: page %zu at %p has %llx, %llx\n", line, i / PAGE, (void *)(p + i),
                    *(unsigned long long *)(p + i), *(unsigned long long *)(p + i + PAGE - 8));
            exit(1);
        }
}
#define STAMPED(p, len, seed) has_stamp((p), (len), (seed), __LINE__)
static inline int zero(const uint8_t *p, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (p[i]) return 0;
    return 1;
}
/* Runs a statement in a child, which must exit with 0. */
#define IN_CHILD(...)                            \
    do {                                         \
        fflush(NULL);                            \
        pid_t child = fork();                    \
        CHECK(child >= 0);                       \
        if (child == 0) {                        \
            __VA_ARGS__;                         \
            _exit(0);                            \
        }                                        \
        int status;                              \
        CHECK(waitpid(child, &status, 0) == child); \
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0); \
    } while (0)
#endif
