/* mremap in all its forms. */
#include "check.h"

#define N (32 * PAGE)

static uint8_t *remap(void *old, size_t from, size_t to, int flags, void *at) {
    return mremap(old, from, to, flags, at);
}

static void shrinking_drops_the_tail(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 1);
    CHECK(remap(p, N, N / 2, 0, NULL) == p);
    STAMPED(p, N / 2, 1);
    unsigned char v[N / 2 / PAGE];
    FAILS(mincore(p + N / 2, N / 2, v) == -1, ENOMEM);
    CHECK(munmap(p, N / 2) == 0);
}

static void growing_keeps_the_contents(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 2);
    /* Something right behind it: it has to move. */
    uint8_t *wall = mmap(p + N, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (wall != MAP_FAILED) FAILS(remap(p, N, 2 * N, 0, NULL) == MAP_FAILED, ENOMEM);
    uint8_t *q = remap(p, N, 8 * N, MREMAP_MAYMOVE, NULL);
    CHECK(q != MAP_FAILED);
    STAMPED(q, N, 2);
    CHECK(zero(q + N, 7 * N));
    stamp(q, 8 * N, 22);
    STAMPED(q, 8 * N, 22);
    CHECK(munmap(q, 8 * N) == 0);
    if (wall != MAP_FAILED) CHECK(munmap(wall, PAGE) == 0);
}

static void what_was_paged_out_moves_as_it_is(void) {
    size_t len = 1024 * PAGE;
    uint8_t *p = rw(len);
    for (int round = 0; round < 20; round++) {
        stamp(p, len, round);
        memset(p + 7 * PAGE, 0x5a, PAGE); /* one of a single byte, one empty, one that does not compress */
        CHECK(madvise(p + 8 * PAGE, PAGE, MADV_DONTNEED) == 0);
        uint64_t rng = 88172645463325252ULL;
        for (size_t i = 0; i < PAGE; i += 8)
            rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17, *(uint64_t *)(p + 9 * PAGE + i) = rng;
        CHECK(madvise(p, len, MADV_PAGEOUT) == 0);
        if (round % 2) CHECK(p[100 * PAGE] == (uint8_t)(round + 100 * PAGE));
        uint8_t *to = rw(2 * len);
        uint8_t *q = remap(p, len, 2 * len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        CHECK(q == to);
        CHECK(madvise(q + len / 2, len, MADV_PAGEOUT) == 0);
        STAMPED(q, 7 * PAGE, round);
        for (size_t i = 0; i < PAGE; i++) CHECK(q[7 * PAGE + i] == 0x5a);
        CHECK(zero(q + 8 * PAGE, PAGE));
        rng = 88172645463325252ULL;
        for (size_t i = 0; i < PAGE; i += 8) {
            rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
            CHECK(*(uint64_t *)(q + 9 * PAGE + i) == rng);
        }
        STAMPED(q + 10 * PAGE, len - 10 * PAGE, round + 10 * PAGE);
        CHECK(zero(q + len, len));
        p = remap(q, 2 * len, len, 0, NULL);
        CHECK(p == q);
    }
    CHECK(munmap(p, len) == 0);
}

static void growing_in_place_into_a_gap(void) {
    uint8_t *p = rw(4 * N);
    CHECK(munmap(p + N, 3 * N) == 0);
    stamp(p, N, 3);
    CHECK(remap(p, N, 2 * N, 0, NULL) == p);
    STAMPED(p, N, 3);
    CHECK(zero(p + N, N));
    CHECK(munmap(p, 2 * N) == 0);
}

static void to_a_fixed_place(void) {
    uint8_t *p = rw(N), *q = rw(2 * N);
    stamp(p, N, 4);
    stamp(q, 2 * N, 44);
    CHECK(remap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
    STAMPED(q, N, 4);
    STAMPED(q + N, N, 44 + N);
    unsigned char v[N / PAGE];
    FAILS(mincore(p, N, v) == -1, ENOMEM);
    /* Part of a mapping moves out of it, growing on the way. */
    uint8_t *r = rw(4 * PAGE);
    CHECK(remap(q + 2 * PAGE, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, r) == r);
    STAMPED(r, 2 * PAGE, 4 + 2 * PAGE);
    CHECK(zero(r + 2 * PAGE, 2 * PAGE));
    STAMPED(q, 2 * PAGE, 4);
    STAMPED(q + 4 * PAGE, N - 4 * PAGE, 4 + 4 * PAGE);
    CHECK(munmap(q, 2 * N) == 0 && munmap(r, 4 * PAGE) == 0);
}

static void to_a_fixed_place_far_away(void) {
    /* A place that the kernel gave for something else, and back. */
    uint8_t *far = mmap(NULL, N, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(far != MAP_FAILED);
    uint8_t *p = rw(N);
    stamp(p, N, 5);
    CHECK(remap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, far) == far);
    STAMPED(far, N, 5);
    stamp(far, N, 55);
    uint8_t *home = rw(N);
    CHECK(remap(far, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, home) == home);
    STAMPED(home, N, 55);
    CHECK(zero(rw(N), N));
    CHECK(munmap(home, N) == 0);
}

static void leaving_the_old_range_mapped(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 6);
    uint8_t *q = remap(p, N, N, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (q == MAP_FAILED && errno == EINVAL) return; /* before Linux 5.7 */
    CHECK(q != MAP_FAILED && q != p);
    STAMPED(q, N, 6);
    CHECK(zero(p, N));
    stamp(p, N, 66);
    STAMPED(q, N, 6);
    CHECK(munmap(p, N) == 0 && munmap(q, N) == 0);
}

static void protection_moves_along(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 7);
    CHECK(mprotect(p, N, PROT_READ) == 0);
    uint8_t *q = remap(p, N, 4 * N, MREMAP_MAYMOVE, NULL);
    CHECK(q != MAP_FAILED);
    STAMPED(q, N, 7);
    int fds[2];
    CHECK(pipe(fds) == 0 && write(fds[1], "x", 1) == 1);
    FAILS(read(fds[0], q, 1) == -1, EFAULT);
    CHECK(mprotect(q, 4 * N, PROT_READ | PROT_WRITE) == 0);
    CHECK(read(fds[0], q, 1) == 1);
    CHECK(munmap(q, 4 * N) == 0);
    close(fds[0]), close(fds[1]);
}

static void what_cannot_be_read_moves_too(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 8);
    CHECK(madvise(p, N / 2, MADV_PAGEOUT) == 0);
    CHECK(mprotect(p, N, PROT_NONE) == 0);
    uint8_t *to = rw(2 * N);
    CHECK(remap(p, N, 2 * N, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    int fds[2];
    CHECK(pipe(fds) == 0);
    FAILS(write(fds[1], to, 1) == -1, EFAULT);
    CHECK(mprotect(to, 2 * N, PROT_READ | PROT_WRITE) == 0);
    STAMPED(to, N, 8);
    CHECK(zero(to + N, N));
    CHECK(munmap(to, 2 * N) == 0);
    close(fds[0]), close(fds[1]);
}

static void bad_arguments_fail_as_in_the_kernel(void) {
    uint8_t *p = rw(N);
    FAILS(remap(p + 1, PAGE, PAGE, 0, NULL) == MAP_FAILED, EINVAL);
    FAILS(remap(p, N, 0, MREMAP_MAYMOVE, NULL) == MAP_FAILED, EINVAL);
    FAILS(remap(p, 0, N, MREMAP_MAYMOVE, NULL) == MAP_FAILED, EINVAL);
    FAILS(remap(p, N, N, MREMAP_FIXED, p + N) == MAP_FAILED, EINVAL);
    FAILS(remap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE) == MAP_FAILED, EINVAL);
    FAILS(remap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, p + N + 1) == MAP_FAILED, EINVAL);
    FAILS(remap(p, N, N, 64, NULL) == MAP_FAILED, EINVAL);
    CHECK(munmap(p, N) == 0);
    FAILS(remap(p, N, 2 * N, MREMAP_MAYMOVE, NULL) == MAP_FAILED, EFAULT);
}

static void a_file_mapping_moves_too(void) {
    char name[] = "/tmp/uzswap-maps-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 4 * PAGE) == 0);
    uint8_t *p = rw(N);
    uint8_t *f = mmap(p + PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    CHECK(f == p + PAGE);
    stamp(f, 4 * PAGE, 9);
    uint8_t *g = remap(f, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 8 * PAGE);
    CHECK(g == p + 8 * PAGE);
    STAMPED(g, 4 * PAGE, 9);
    CHECK(remap(g, 4 * PAGE, PAGE, 0, NULL) == g);
    uint8_t *h = remap(g, PAGE, 2 * PAGE, MREMAP_MAYMOVE, NULL);
    CHECK(h != MAP_FAILED);
    STAMPED(h, 2 * PAGE, 9);
    uint8_t *again = mmap(f, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == f && zero(again, 4 * PAGE));
    stamp(again, 4 * PAGE, 10);
    STAMPED(again, 4 * PAGE, 10);
    CHECK(munmap(h, 2 * PAGE) == 0 && munmap(p, N) == 0);
    close(fd);
}

int main(void) {
    shrinking_drops_the_tail();
    growing_keeps_the_contents();
    what_was_paged_out_moves_as_it_is();
    growing_in_place_into_a_gap();
    to_a_fixed_place();
    to_a_fixed_place_far_away();
    leaving_the_old_range_mapped();
    protection_moves_along();
    what_cannot_be_read_moves_too();
    bad_arguments_fail_as_in_the_kernel();
    a_file_mapping_moves_too();
    puts("ok");
    return 0;
}
