/* Has memory all over the address space, where it asks for it by hint, and passes pointers into it
 * to system calls. With "handler" it has a SIGSYS handler of its own. With "exact" it says how many
 * hints were followed; else it falls back, as most do. Says what of the environment is ours. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (256 << 10)
#define HINTS 256

static volatile int raised;
static void on_sigsys(int signal) { raised = signal; }

static void check(int right, const char *what) {
    if (right) return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

/* Spread over 47 bits, but for where programs and libraries are. */
static uintptr_t hint(int n) {
    if (sizeof(void *) == 4) return 0x10000000 + n * 0x400000ul;
    uint64_t at = (uint64_t)n * ((1ull << 47) / HINTS) + ((uint64_t)n << 20) + (1ull << 33);
    int taken = (at >> 40) >= 0x54 && (at >> 40) <= 0x58;
    return taken || (at >> 40) >= 0x70 ? 0 : (uintptr_t)at;
}

static void use(char *at) {
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    strcpy(at, "some text");
    check(write(ends[1], at, 10) == 10, "write");
    check(read(ends[0], at + 4096, 10) == 10 && !strcmp(at + 4096, "some text"), "read");
    struct iovec *vector = (void *)(at + 8192);
    vector[0] = (struct iovec){at, 5};
    vector[1] = (struct iovec){at + 5, 5};
    check(writev(ends[1], vector, 2) == 10 && readv(ends[0], vector, 2) == 10, "readv, writev");
    struct stat *stat_at = (void *)(at + 12288);
    strcpy(at + 100, "/");
    check(stat(at + 100, stat_at) == 0 && S_ISDIR(stat_at->st_mode), "stat");
    check(syscall(SYS_futex, at, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0) == 0, "futex");
    struct sigaction *action = memset(at + 16384, 0, sizeof *action);
    action->sa_handler = SIG_IGN;
    check(sigaction(SIGUSR1, action, action + 1) == 0 && raise(SIGUSR1) == 0, "sigaction");
    sigset_t *mask = (void *)(at + 20480);
    check(sigemptyset(mask) == 0 && sigprocmask(SIG_SETMASK, mask, mask + 1) == 0, "sigprocmask");
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv) {
    int exact = 0, followed = 0;
    for (int i = 1; i < argc; i++) {
        exact |= !strcmp(argv[i], "exact");
        if (!strcmp(argv[i], "handler")) signal(SIGSYS, on_sigsys);
    }
    for (char **entry = environ; *entry; entry++)
        if (!strncmp(*entry, "UZSWAP_GROUP_FILE=", 18) || strstr(*entry, "libuzswap")) puts(*entry);
    for (int n = 0; n < HINTS; n++) {
        uintptr_t want = hint(n);
        if (!want) continue;
        int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
        char *at = mmap((void *)want, LEN, prot, flags, -1, 0);
        if (at == MAP_FAILED && !exact) at = mmap(NULL, LEN, prot, flags, -1, 0);
        check(at != MAP_FAILED, "mmap");
        followed += at == (char *)want;
        use(at);
        check(madvise(at, LEN, MADV_DONTNEED) == 0 && !*at, "madvise");
        check(mprotect(at, 4096, PROT_READ) == 0, "mprotect");
        char *half = at + LEN / 2;
        check(mmap(half, LEN / 2, prot, flags | MAP_FIXED, -1, 0) == half, "mmap over it");
        use(half);
        check(mremap(half, LEN / 2, LEN / 4, MREMAP_MAYMOVE) == half, "mremap");
        check(munmap(at, LEN) == 0, "munmap");
    }
    if (exact) printf("%d hints followed\n", followed);
    pid_t child = fork();
    if (child == 0) _exit(7);
    int status = 0;
    check(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "fork");
    if (raised) puts("SIGSYS");
    puts("right");
    return 0;
}
