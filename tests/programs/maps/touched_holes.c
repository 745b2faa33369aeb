/* Where nothing is mapped, an access ends in SIGSEGV, and what is not mapped stays as free as it
 * was: for hints, for what may replace nothing, for what grows in place. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>

#define OPEN (PROT_READ | PROT_WRITE)
#define LEN (32 * PAGE)

static sigjmp_buf back;

static void on_segv(int sig, siginfo_t *info, void *uc) {
    (void)sig, (void)uc;
    siglongjmp(back, info->si_code == SEGV_MAPERR ? 1 : 2);
}

static void not_mapped(volatile uint8_t *p) {
    int code = sigsetjmp(back, 1);
    if (code == 0) *p = 1;
    CHECK(code == 1);
}

/* Mapped memory around a gap that was touched, by the program and by the kernel. */
static uint8_t *around_a_gap(size_t first, size_t nr) {
    int ends[2];
    uint8_t *p = rw(LEN);
    stamp(p, LEN, 1);
    CHECK(munmap(p + first * PAGE, nr * PAGE) == 0);
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = first; i < first + nr; i += 2) not_mapped(p + i * PAGE + 9);
    CHECK(pipe(ends) == 0 && write(ends[1], "data", 4) == 4);
    FAILS(read(ends[0], p + (first + nr - 1) * PAGE, 4) == -1, EFAULT);
    FAILS(msync(p, LEN, MS_ASYNC) == -1, ENOMEM);
    close(ends[0]), close(ends[1]);
    return p;
}

static void works(uint8_t *p) {
    CHECK(zero(p, PAGE));
    stamp(p, PAGE, 2);
    CHECK(madvise(p, PAGE, MADV_PAGEOUT) == 0);
    STAMPED(p, PAGE, 2);
}

static void a_gap_is_filled(void) {
    const int flags[] = {MAP_FIXED_NOREPLACE, MAP_FIXED, 0};
    for (int i = 0; i < 3; i++) {
        uint8_t *p = around_a_gap(4, 3), *gap = p + 4 * PAGE;
        CHECK(mmap(gap, 3 * PAGE, OPEN, MAP_PRIVATE | MAP_ANONYMOUS | flags[i], -1, 0) == gap);
        for (int k = 0; k < 3; k++) works(gap + k * PAGE);
        STAMPED(p, 4 * PAGE, 1);
        CHECK(munmap(p, LEN) == 0);
    }
}

static void a_mapping_grows_into_it(void) {
    uint8_t *p = around_a_gap(4, LEN / PAGE - 4);
    CHECK(mremap(p, 4 * PAGE, 9 * PAGE, 0) == p);
    for (int k = 4; k < 9; k++) works(p + k * PAGE);
    not_mapped(p + 10 * PAGE);
    STAMPED(p, 4 * PAGE, 1);
    CHECK(munmap(p, LEN) == 0);
}

static void a_mapping_moves_there(void) {
    uint8_t *other = rw(3 * PAGE), *p = around_a_gap(4, 3);
    stamp(other, 3 * PAGE, 5);
    CHECK(mremap(other, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 4 * PAGE) == p + 4 * PAGE);
    STAMPED(p + 4 * PAGE, 3 * PAGE, 5);
    not_mapped(other);
    CHECK(munmap(p, LEN) == 0);
}

static void a_child_fills_it(void) {
    uint8_t *p = around_a_gap(4, 3), *gap = p + 4 * PAGE;
    IN_CHILD(not_mapped(gap); not_mapped(gap + PAGE);
             CHECK(mmap(gap, 3 * PAGE, OPEN, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == gap);
             for (int k = 0; k < 3; k++) works(gap + k * PAGE);
             STAMPED(p, 4 * PAGE, 1));
    not_mapped(gap);
    CHECK(munmap(p, LEN) == 0);
    not_mapped(p), not_mapped(gap);
}

int main(void) {
    struct sigaction act = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
    a_gap_is_filled();
    a_mapping_grows_into_it();
    a_mapping_moves_there();
    a_child_fills_it();
    puts("ok");
    return 0;
}
