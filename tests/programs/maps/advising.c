/* madvise, and what forked children see of it. */
#include "check.h"

#define N (64 * PAGE)

static void dropped_memory_is_zero(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 1);
    CHECK(madvise(p + 3 * PAGE, 5 * PAGE, MADV_DONTNEED) == 0);
    CHECK(zero(p + 3 * PAGE, 5 * PAGE));
    STAMPED(p, 3 * PAGE, 1);
    STAMPED(p + 8 * PAGE, N - 8 * PAGE, 1 + 8 * PAGE);
    CHECK(madvise(p, N, MADV_FREE) == 0);
    for (size_t i = 0; i < N; i += PAGE) {
        uint64_t v = *(uint64_t *)(p + i);
        CHECK(v == 0 || v == 1 + i); /* the kernel may or may not have dropped it */
    }
    stamp(p, N, 11);
    STAMPED(p, N, 11);
    CHECK(munmap(p, N) == 0);
}

static void paged_out_memory_comes_back(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 2);
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    STAMPED(p, N, 2);
    CHECK(madvise(p, N, MADV_COLD) == 0);
    CHECK(madvise(p, N, MADV_WILLNEED) == 0);
    STAMPED(p, N, 2);
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    CHECK(madvise(p, N, MADV_DONTNEED) == 0);
    CHECK(zero(p, N));
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    CHECK(zero(p, N));
    CHECK(munmap(p, N) == 0);
}

static void harmless_advice_is_accepted(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 3);
    int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_NOHUGEPAGE, MADV_DONTDUMP,
                    MADV_DODUMP};
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) CHECK(madvise(p, N, advice[i]) == 0);
    CHECK(posix_madvise(p, N, POSIX_MADV_DONTNEED) == 0);
    CHECK(posix_madvise(p, N, POSIX_MADV_SEQUENTIAL) == 0);
    STAMPED(p, N, 3);
    CHECK(munmap(p, N) == 0);
}

static void errors_are_the_kernels(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 4);
    FAILS(madvise(p + 1, PAGE, MADV_DONTNEED) == -1, EINVAL);
    FAILS(madvise(p, PAGE, 12345) == -1, EINVAL);
    CHECK(madvise(p, 0, MADV_DONTNEED) == 0);
    CHECK(posix_madvise(p + 1, PAGE, POSIX_MADV_WILLNEED) == EINVAL);
    CHECK(munmap(p + 8 * PAGE, PAGE) == 0);
    /* The rest is advised nevertheless. */
    FAILS(madvise(p, N, MADV_DONTNEED) == -1, ENOMEM);
    CHECK(zero(p, 8 * PAGE) && zero(p + 9 * PAGE, N - 9 * PAGE));
    CHECK(munmap(p, N) == 0);
    FAILS(madvise(p, N, MADV_DONTNEED) == -1, ENOMEM);
}

static void populating(void) {
#ifdef MADV_POPULATE_WRITE
    uint8_t *p = rw(N);
    if (madvise(p, N, MADV_POPULATE_WRITE) == 0) {
        CHECK(zero(p, N));
        CHECK(mprotect(p, N, PROT_READ) == 0);
        CHECK(madvise(p, N, MADV_POPULATE_READ) == 0);
        FAILS(madvise(p, N, MADV_POPULATE_WRITE) == -1, EINVAL);
    }
    CHECK(munmap(p, N) == 0);
#endif
}

static void what_a_child_inherits(void) {
    uint8_t *kept = rw(N), *wiped = rw(N), *gone = rw(N);
    stamp(kept, N, 5), stamp(wiped, N, 6), stamp(gone, N, 7);
    CHECK(madvise(wiped + 4 * PAGE, 8 * PAGE, MADV_WIPEONFORK) == 0);
    CHECK(madvise(gone + 4 * PAGE, 8 * PAGE, MADV_DONTFORK) == 0);
    CHECK(madvise(kept, N / 2, MADV_PAGEOUT) == 0);
    IN_CHILD({
        STAMPED(kept, N, 5);
        STAMPED(wiped, 4 * PAGE, 6);
        CHECK(zero(wiped + 4 * PAGE, 8 * PAGE));
        STAMPED(wiped + 12 * PAGE, N - 12 * PAGE, 6 + 12 * PAGE);
        STAMPED(gone, 4 * PAGE, 7);
        unsigned char v[8];
        FAILS(mincore(gone + 4 * PAGE, 8 * PAGE, v) == -1, ENOMEM);
        stamp(kept, N, 55);
        STAMPED(kept, N, 55);
        IN_CHILD(STAMPED(kept, N, 55));
    });
    STAMPED(kept, N, 5), STAMPED(wiped, N, 6), STAMPED(gone, N, 7);
    CHECK(madvise(gone, N, MADV_DOFORK) == 0 && madvise(wiped, N, MADV_KEEPONFORK) == 0);
    IN_CHILD(STAMPED(gone, N, 7); STAMPED(wiped, N, 6));
    CHECK(munmap(kept, N) == 0 && munmap(wiped, N) == 0 && munmap(gone, N) == 0);
}

int main(void) {
    dropped_memory_is_zero();
    paged_out_memory_comes_back();
    harmless_advice_is_accepted();
    errors_are_the_kernels();
    populating();
    what_a_child_inherits();
    puts("ok");
    return 0;
}
