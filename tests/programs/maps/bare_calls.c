/* The mmap family by system calls outside the C library, from assembly or syscall(3), on memory
 * from mmap or malloc. */
#include "check.h"
#include <sys/syscall.h>

#define N (64 * PAGE)

static long bare(long nr, long a, long b, long c, long d, long e, long f) {
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#define BARE(nr, p, n, c, d, e) bare((nr), (long)(p), (long)(n), (long)(c), (long)(d), (long)(e), 0)

/* Machine code made at run time, as by libraries that probe the processor; less than a page. */
static void made_code_runs_and_its_place_is_writable_again(void) {
    static const uint8_t code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov eax, 42; ret */
    for (int round = 0; round < 20; round++) {
        uint8_t *p = rw(PAGE);
        memcpy(p, code, sizeof code);
        CHECK(BARE(SYS_mprotect, p, sizeof code, PROT_READ | PROT_EXEC, 0, 0) == 0);
        int (*made)(void) = (int (*)(void))(uintptr_t)p;
        CHECK(made() == 42);
        CHECK(munmap(p, PAGE) == 0);
        /* Whoever is given the place next may write there. */
        uint8_t *q = rw(PAGE);
        memset(q, 'A', PAGE);
        CHECK(BARE(SYS_munmap, q, PAGE, 0, 0, 0) == 0);
    }
}

static void what_is_unmapped_is_gone_and_can_be_mapped_again(void) {
    for (int round = 0; round < 20; round++) {
        uint8_t *p = rw(N);
        stamp(p, N, round);
        CHECK(syscall(SYS_munmap, p + N / 2, N / 2) == 0);
        unsigned char v[N / 2 / PAGE];
        FAILS(mincore(p + N / 2, N / 2, v) == -1, ENOMEM);
        STAMPED(p, N / 2, round);
        uint8_t *q = rw(N);
        CHECK(zero(q, N));
        stamp(q, N, 1000 + round);
        STAMPED(p, N / 2, round);
        CHECK(BARE(SYS_munmap, q, N, 0, 0, 0) == 0);
        CHECK(BARE(SYS_munmap, p, N / 2, 0, 0, 0) == 0);
    }
}

static void advice_is_taken(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 1);
    CHECK(BARE(SYS_madvise, p, N, MADV_PAGEOUT, 0, 0) == 0);
    STAMPED(p, N, 1);
    CHECK(BARE(SYS_madvise, p, N / 2, MADV_DONTNEED, 0, 0) == 0);
    CHECK(zero(p, N / 2));
    STAMPED(p + N / 2, N / 2, 1 + N / 2);
    CHECK(BARE(SYS_madvise, p + 1, PAGE, MADV_DONTNEED, 0, 0) == -EINVAL);
    CHECK(BARE(SYS_mlock, p, PAGE, 0, 0, 0) == 0 && BARE(SYS_munlock, p, PAGE, 0, 0, 0) == 0);
    CHECK(munmap(p, N) == 0);
}

static void residency_is_what_the_library_says(void) {
    uint8_t *p = rw(N);
    stamp(p, N / 2, 1);
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    p[0]++;
    unsigned char want[N / PAGE], *v = rw(PAGE);
    /* A page that is not managed. */
    static unsigned char here[PAGE] __attribute__((aligned(PAGE)));
    CHECK(mincore(p, N, want) == 0 && BARE(SYS_mincore, p, N, v, 0, 0) == 0);
    CHECK(memcmp(v, want, sizeof want) == 0 && v[0] == 1 && v[N / PAGE - 1] == 0);
    CHECK(BARE(SYS_mincore, p, N, 1, 0, 0) == -EFAULT);
    unsigned char *volatile nowhere = NULL;
    FAILS(mincore(p, N, nowhere) == -1, EFAULT);
    FAILS(mincore(here, PAGE, nowhere) == -1, EFAULT);
    CHECK(mprotect(v, PAGE, PROT_READ) == 0);
    FAILS(mincore(p, N, v) == -1, EFAULT);
    CHECK(mprotect(v, PAGE, PROT_READ | PROT_WRITE) == 0 && mincore(p, N, v) == 0);
    CHECK(BARE(SYS_mincore, p + 1, N, v, 0, 0) == -EINVAL);
    CHECK(munmap(p + N / 2, N / 2) == 0);
    CHECK(BARE(SYS_mincore, p, N, v, 0, 0) == -ENOMEM);
    CHECK(munmap(p, N / 2) == 0 && munmap(v, PAGE) == 0);
}

static void without_a_key_the_protection_changes(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 1);
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    CHECK(BARE(SYS_pkey_mprotect, p, N, PROT_READ, -1, 0) == 0);
    STAMPED(p, N, 1);
    FILE *zeroes = fopen("/dev/zero", "r");
    FAILS(zeroes && read(fileno(zeroes), p, PAGE) == -1, EFAULT);
    CHECK(BARE(SYS_pkey_mprotect, p, N, PROT_READ | PROT_WRITE, -1, 0) == 0);
    stamp(p, N, 2);
    STAMPED(p, N, 2);
    CHECK(fclose(zeroes) == 0 && munmap(p, N) == 0);
}

static void what_moves_keeps_its_contents(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 7);
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    uint8_t *q = (uint8_t *)BARE(SYS_mremap, p, N, 4 * N, MREMAP_MAYMOVE, 0);
    CHECK((long)q > 0);
    STAMPED(q, N, 7);
    CHECK(zero(q + N, 3 * N));
    stamp(q, 4 * N, 8);
    STAMPED(q, 4 * N, 8);
    CHECK(munmap(q, 4 * N) == 0);
}

static void a_fixed_mapping_replaces(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 3);
    long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    uint8_t *at = p + N / 4;
    CHECK(bare(SYS_mmap, (long)at, N / 4, PROT_READ | PROT_WRITE, flags, -1, 0) == (long)at);
    STAMPED(p, N / 4, 3);
    CHECK(zero(at, N / 4));
    STAMPED(p + N / 2, N / 2, 3 + N / 2);
    /* A file's pages, in the middle of it. */
    FILE *file = tmpfile();
    CHECK(file && fwrite("here", 1, 4, file) == 4 && fflush(file) == 0);
    long fixed = MAP_PRIVATE | MAP_FIXED;
    CHECK(bare(SYS_mmap, (long)at, PAGE, PROT_READ, fixed, fileno(file), 0) == (long)at);
    CHECK(memcmp(at, "here", 4) == 0);
    fclose(file);
    CHECK(BARE(SYS_munmap, p, N, 0, 0, 0) == 0);
    uint8_t *q = rw(N);
    stamp(q, N, 4);
    STAMPED(q, N, 4);
    CHECK(munmap(q, N) == 0);
}

static void a_child_of_a_fork_does_it_too(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 5);
    IN_CHILD({
        STAMPED(p, N, 5);
        CHECK(BARE(SYS_madvise, p, N, MADV_DONTNEED, 0, 0) == 0);
        CHECK(zero(p, N));
        CHECK(BARE(SYS_munmap, p, N, 0, 0, 0) == 0);
    });
    STAMPED(p, N, 5);
    CHECK(munmap(p, N) == 0);
}

int main(void) {
    made_code_runs_and_its_place_is_writable_again();
    what_is_unmapped_is_gone_and_can_be_mapped_again();
    advice_is_taken();
    residency_is_what_the_library_says();
    without_a_key_the_protection_changes();
    what_moves_keeps_its_contents();
    a_fixed_mapping_replaces();
    a_child_of_a_fork_does_it_too();
    puts("right");
    return 0;
}
