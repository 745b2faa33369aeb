/* Anonymous memory in every way that programs map, replace and unmap it. */
#include "check.h"
#include <fcntl.h>

#define N (64 * PAGE)

static void fresh_memory_is_zero_and_keeps_what_is_written(void) {
    uint8_t *p = rw(N);
    CHECK(((uintptr_t)p & (PAGE - 1)) == 0);
    CHECK(zero(p, N));
    stamp(p, N, 1);
    STAMPED(p, N, 1);
    CHECK(munmap(p, N) == 0);
    /* A range taken again is zero again. */
    uint8_t *q = rw(N);
    CHECK(zero(q, N));
    CHECK(munmap(q, N) == 0);
}

static void odd_lengths_are_rounded_up(void) {
    uint8_t *p = rw(5);
    p[PAGE - 1] = 7;
    CHECK(munmap(p, 1) == 0);
    CHECK(munmap(p, PAGE) == 0); /* nothing there: no error */
}

static void bad_arguments_fail_as_in_the_kernel(void) {
    FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0) == MAP_FAILED, EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED, EBADF);
    FAILS(mmap(NULL, (size_t)1 << 62, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, ENOMEM);
    FAILS(mmap(NULL, SIZE_MAX - 5, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, ENOMEM);
    uint8_t *p = rw(2 * PAGE);
    FAILS(mmap(p + 1, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED, EINVAL);
    FAILS(munmap(p + 1, PAGE) == -1, EINVAL);
    FAILS(munmap(p, 0) == -1, EINVAL);
    CHECK(munmap(p, 2 * PAGE) == 0);
    errno = 77;
    p = rw(PAGE);
    CHECK(munmap(p, PAGE) == 0);
    CHECK(errno == 77); /* success leaves errno alone */
}

static void a_hole_in_the_middle(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 2);
    CHECK(munmap(p + 10 * PAGE, 5 * PAGE) == 0);
    STAMPED(p, 10 * PAGE, 2);
    STAMPED(p + 15 * PAGE, N - 15 * PAGE, 2 + 15 * PAGE);
    unsigned char v[5];
    FAILS(mincore(p + 10 * PAGE, 5 * PAGE, v) == -1, ENOMEM);
    /* Across the hole, all at once. */
    CHECK(munmap(p, N) == 0);
}

static void fixed_over_part_of_a_mapping(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 3);
    uint8_t *q = mmap(p + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(q == p + 4 * PAGE);
    CHECK(zero(q, 4 * PAGE));
    STAMPED(p, 4 * PAGE, 3);
    STAMPED(p + 8 * PAGE, N - 8 * PAGE, 3 + 8 * PAGE);
    stamp(q, 4 * PAGE, 33);
    STAMPED(q, 4 * PAGE, 33);
    FAILS(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED, EEXIST);
    CHECK(munmap(p, 2 * PAGE) == 0);
    q = mmap(p, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(q == p);
    CHECK(zero(q, 2 * PAGE));
    CHECK(munmap(p, N) == 0);
}

static void a_file_over_part_of_a_mapping(void) {
    char name[] = "/tmp/uzswap-maps-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    char text[PAGE];
    memset(text, 'f', sizeof text);
    for (int i = 0; i < 4; i++) CHECK(write(fd, text, PAGE) == (ssize_t)PAGE);
    uint8_t *p = rw(N);
    stamp(p, N, 4);
    uint8_t *f = mmap(p + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    CHECK(f == p + 8 * PAGE);
    CHECK(f[0] == 'f' && f[4 * PAGE - 1] == 'f');
    f[PAGE] = 'g';
    char c;
    CHECK(pread(fd, &c, 1, PAGE) == 1 && c == 'g');
    STAMPED(p, 8 * PAGE, 4);
    STAMPED(p + 12 * PAGE, N - 12 * PAGE, 4 + 12 * PAGE);
    CHECK(madvise(f, 4 * PAGE, MADV_DONTNEED) == 0);
    CHECK(f[PAGE] == 'g'); /* it is the file's page, not ours */
    CHECK(mprotect(f, PAGE, PROT_READ) == 0);
    /* Half of it becomes anonymous again, half goes. */
    uint8_t *a = mmap(f, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(a == f && zero(a, 2 * PAGE));
    stamp(a, 2 * PAGE, 44);
    CHECK(f[2 * PAGE] == 'f');
    CHECK(munmap(f + 2 * PAGE, 2 * PAGE) == 0);
    uint8_t *b = mmap(f + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(b == f + 2 * PAGE && zero(b, 2 * PAGE));
    STAMPED(a, 2 * PAGE, 44);
    CHECK(munmap(p, N) == 0);
    close(fd);
}

static void other_kinds_still_work(void) {
    int flags[] = {MAP_SHARED, MAP_PRIVATE | MAP_32BIT, MAP_PRIVATE | MAP_STACK, MAP_PRIVATE | MAP_NORESERVE,
                   MAP_PRIVATE | MAP_POPULATE, MAP_PRIVATE | MAP_GROWSDOWN};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        uint8_t *p = mmap(NULL, N, PROT_READ | PROT_WRITE, flags[i] | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        if (flags[i] & MAP_32BIT) CHECK((uintptr_t)p + N < (1UL << 32));
        stamp(p, N, 5);
        STAMPED(p, N, 5);
        CHECK(munmap(p, N) == 0);
    }
    uint8_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    IN_CHILD(shared[0] = 9);
    CHECK(shared[0] == 9);
    CHECK(munmap(shared, PAGE) == 0);
}

static void reserve_then_commit(void) {
    size_t len = (size_t)1 << 36;
    uint8_t *p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    uint8_t *a = p + (len >> 1), *b = p + (len >> 2);
    CHECK(mprotect(a, N, PROT_READ | PROT_WRITE) == 0);
    stamp(a, N, 6);
    CHECK(mmap(b, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == b);
    stamp(b, N, 7);
    STAMPED(a, N, 6);
    STAMPED(b, N, 7);
    /* Decommit, as allocators and collectors do. */
    CHECK(mmap(b, N, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == b);
    CHECK(mprotect(b, N, PROT_READ | PROT_WRITE) == 0);
    CHECK(zero(b, N));
    CHECK(munmap(p, len) == 0);
}

static void trimming_to_an_alignment(void) {
    size_t align = 64UL << 20, len = 3 * PAGE;
    uint8_t *p = rw(len + align);
    uint8_t *a = (uint8_t *)(((uintptr_t)p + align - 1) & ~(align - 1));
    if (a > p) CHECK(munmap(p, a - p) == 0);
    CHECK(munmap(a + len, p + len + align - (a + len)) == 0);
    stamp(a, len, 8);
    STAMPED(a, len, 8);
    CHECK(munmap(a, len) == 0);
}

static void thousands_of_mappings(void) {
    enum { NR = 4000 };
    static uint8_t *p[NR];
    for (int i = 0; i < NR; i++) {
        p[i] = map((1 + i % 7) * PAGE, i % 3 ? PROT_READ | PROT_WRITE : PROT_READ);
        if (i % 3) stamp(p[i], (1 + i % 7) * PAGE, i);
    }
    for (int i = 0; i < NR; i += 2) CHECK(munmap(p[i], (1 + i % 7) * PAGE) == 0);
    for (int i = 1; i < NR; i += 2) {
        if (i % 3) STAMPED(p[i], (1 + i % 7) * PAGE, i);
        else CHECK(zero(p[i], (1 + i % 7) * PAGE));
        CHECK(munmap(p[i], (1 + i % 7) * PAGE) == 0);
    }
}

int main(void) {
    fresh_memory_is_zero_and_keeps_what_is_written();
    odd_lengths_are_rounded_up();
    bad_arguments_fail_as_in_the_kernel();
    a_hole_in_the_middle();
    fixed_over_part_of_a_mapping();
    a_file_over_part_of_a_mapping();
    other_kinds_still_work();
    reserve_then_commit();
    trimming_to_an_alignment();
    thousands_of_mappings();
    puts("ok");
    return 0;
}
