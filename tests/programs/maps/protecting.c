/* mprotect, mlock, mincore; protection faults reach the program's handler with their address. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>

#define N (64 * PAGE)

static sigjmp_buf back;
static volatile uintptr_t fault_at;

static void on_segv(int sig, siginfo_t *info, void *uc) {
    (void)sig, (void)uc;
    fault_at = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

/* Whether an access faults, at that very address. */
static int faults(volatile uint8_t *p, int write) {
    fault_at = 0;
    if (sigsetjmp(back, 1) == 0) {
        if (write) *p = 1;
        else (void)*p;
        return 0;
    }
    CHECK(fault_at == (uintptr_t)p);
    return 1;
}

static void read_only_means_that(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 1);
    CHECK(mprotect(p + PAGE, 2 * PAGE, PROT_READ) == 0);
    CHECK(faults(p + PAGE + 5, 1));
    CHECK(!faults(p + PAGE + 5, 0));
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    CHECK(faults(p + 2 * PAGE, 1));
    STAMPED(p, N, 1);
    CHECK(mprotect(p, N, PROT_READ | PROT_WRITE) == 0);
    CHECK(!faults(p + PAGE + 16, 1));
    CHECK(munmap(p, N) == 0);
    CHECK(faults(p, 0) && faults(p, 1));
}

static void no_access_keeps_the_contents(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 2);
    CHECK(madvise(p, 8 * PAGE, MADV_PAGEOUT) == 0);
    CHECK(mprotect(p, 16 * PAGE, PROT_NONE) == 0);
    CHECK(faults(p + 3 * PAGE, 0) && faults(p + 12 * PAGE, 1));
    CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
    CHECK(mprotect(p, 16 * PAGE, PROT_READ | PROT_WRITE) == 0);
    STAMPED(p, N, 2);
    CHECK(munmap(p, N) == 0);
}

static void a_lazily_committed_reservation(void) {
    uint8_t *p = map(N, PROT_NONE);
    for (size_t i = 0; i < N; i += PAGE) {
        CHECK(faults(p + i, 1));
        CHECK(mprotect(p + i, PAGE, PROT_READ | PROT_WRITE) == 0);
        CHECK(!faults(p + i, 1));
    }
    stamp(p, N, 3);
    STAMPED(p, N, 3);
    CHECK(munmap(p, N) == 0);
}

static void code_runs_from_it(void) {
    uint8_t *p = rw(PAGE);
    static const uint8_t code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
    memcpy(p, code, sizeof code);
    CHECK(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0);
    int (*f)(void) = (int (*)(void))(void *)p;
    CHECK(f() == 42);
    CHECK(madvise(p, PAGE, MADV_PAGEOUT) == 0);
    CHECK(f() == 42);
    CHECK(munmap(p, PAGE) == 0);
    p = map(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(p, code, sizeof code);
    CHECK(((int (*)(void))(void *)p)() == 42);
    CHECK(munmap(p, PAGE) == 0);
}

static void errors_are_the_kernels(void) {
    uint8_t *p = rw(N);
    FAILS(mprotect(p + 1, PAGE, PROT_READ) == -1, EINVAL);
    CHECK(mprotect(p, 0, PROT_READ) == 0);
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    FAILS(mprotect(p, N, PROT_READ) == -1, ENOMEM);
    CHECK(faults(p, 1)); /* as far as the hole it was done */
    CHECK(munmap(p, N) == 0);
    FAILS(mprotect(p, N, PROT_READ) == -1, ENOMEM);
}

static void locking(void) {
    uint8_t *p = rw(N);
    stamp(p, N, 4);
    CHECK(mlock(p, 2 * PAGE) == 0);
    CHECK(mlock(p + 100, PAGE) == 0);
    CHECK(munlock(p, 2 * PAGE) == 0);
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    FAILS(mlock(p, N) == -1, ENOMEM);
    FAILS(munlock(p, N) == -1, ENOMEM);
    STAMPED(p, 4 * PAGE, 4);
    FAILS(mlockall(64) == -1, EINVAL);
    CHECK(munlockall() == 0);
    CHECK(munmap(p, N) == 0);
}

static void residency(void) {
    uint8_t *p = rw(N);
    unsigned char v[N / PAGE];
    stamp(p, N, 5);
    CHECK(mincore(p, N, v) == 0);
    for (size_t i = 0; i < N / PAGE; i++) CHECK(v[i] & 1);
    FAILS(mincore(p + 1, PAGE, v) == -1, EINVAL);
    /* The answer may go to the memory that is asked about. */
    CHECK(mincore(p, N, p) == 0);
    CHECK(p[0] & 1);
    CHECK(munmap(p, N) == 0);
}

/* Each brings in more than the page that it locks. How much a user may lock is limited. */
static void locking_here_and_there(void) {
    size_t step = 32 * PAGE, len = 400 * step;
    uint8_t *p = rw(len);
    for (size_t at = 0; at < len; at += step) {
        if (mlock(p + at, PAGE) != 0) CHECK(errno == ENOMEM || errno == EAGAIN);
    }
    for (int round = 0; round < 1000; round++) {
        CHECK(mlock(p, PAGE) == 0 && munlock(p, PAGE) == 0);
    }
    stamp(p, len, 1);
    STAMPED(p, len, 1);
    CHECK(munmap(p, len) == 0);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    read_only_means_that();
    no_access_keeps_the_contents();
    a_lazily_committed_reservation();
    code_runs_from_it();
    errors_are_the_kernels();
    locking();
    locking_here_and_there();
    residency();
    puts("ok");
    return 0;
}
