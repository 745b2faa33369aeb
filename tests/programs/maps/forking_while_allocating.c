/* A program forks while its threads allocate, map and unmap; each child allocates, starts threads,
 * forks again, and finds what the parent had at that moment. Arguments: forks, threads. */
#include "check.h"
#include <pthread.h>

static volatile int stop;

static void *busy(void *arg) {
    uint64_t rng = (uintptr_t)arg * 0x9e3779b97f4a7c15ULL + 1;
    void *kept[64] = {0};
    while (!stop) {
        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        size_t i = rng % 64, size = 1 + rng % (i == 0 ? 20UL << 20 : i < 8 ? 100000 : 500);
        free(kept[i]);
        kept[i] = malloc(size);
        CHECK(kept[i]);
        ((char *)kept[i])[size - 1] = 1;
        if (i == 9) {
            uint8_t *p = rw(20 * PAGE);
            stamp(p, 20 * PAGE, rng);
            CHECK(madvise(p, 20 * PAGE, MADV_PAGEOUT) == 0);
            STAMPED(p, 20 * PAGE, rng);
            CHECK(munmap(p, 20 * PAGE) == 0);
        }
        if (i == 10) {
            char *s = NULL;
            CHECK(asprintf(&s, "%zu", size) > 0);
            free(s);
        }
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    return NULL;
}

static void *brief(void *arg) {
    char *p = malloc(5000);
    memset(p, 3, 5000);
    free(arg);
    return p;
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 60, threads = argc > 2 ? atoi(argv[2]) : 4;
    pthread_t t[64];
    CHECK(threads <= 64);
    size_t len = 2000 * PAGE;
    uint8_t *data = malloc(len);
    for (int i = 0; i < threads; i++) CHECK(pthread_create(&t[i], NULL, busy, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < forks; i++) {
        stamp(data, len, i);
        fflush(NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(30); /* a child that waits for a lock of a thread it does not have */
            STAMPED(data, len, i);
            stamp(data, len / 2, i + 1000);
            void *p = malloc(10);
            for (int k = 0; k < 1000; k++) free(malloc(k * 7));
            for (int k = 0; k < 3; k++) {
                pthread_t b;
                CHECK(pthread_create(&b, NULL, brief, p) == 0 && pthread_join(b, &p) == 0);
            }
            FILE *f = fopen("/dev/null", "w");
            CHECK(f && fprintf(f, "%d", i) > 0 && fclose(f) == 0);
            if (i % 8 == 0) IN_CHILD(STAMPED(data, len / 2, i + 1000); free(p));
            STAMPED(data + len / 2, len / 2, i + len / 2);
            free(data);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (status) fprintf(stderr, "child %d of fork %d: status %#x\n", child, i, status);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        STAMPED(data, len, i);
    }
    stop = 1;
    for (int i = 0; i < threads; i++) CHECK(pthread_join(t[i], NULL) == 0);
    puts("ok");
    return 0;
}
