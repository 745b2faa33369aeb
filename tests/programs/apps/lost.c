// lost MIB SEED
//
// What: fills MIB of mmap'ed memory with random bytes, on a swap device that cannot be read. A page
// written there is lost: accesses get SIGBUS and system calls EFAULT, as with the kernel's swap,
// and never zeroes. A new page in its place is whole again.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, NR_TRIED = 40 };
static uint64_t *memory;
static size_t pages;
static sigjmp_buf away;
static volatile uintptr_t expected;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void on_sigbus(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)context;
    if (info->si_code != BUS_ADRERR || (uintptr_t)info->si_addr / PAGE != expected / PAGE)
        _exit(3);
    siglongjmp(away, 1);
}

static uint64_t *at(size_t page) { return memory + page * WORDS; }

// Whether an access gets SIGBUS; if not, it must be right.
static int is_lost(size_t page, uint64_t seed) {
    expected = (uintptr_t)at(page);
    if (sigsetjmp(away, 1))
        return 1;
    for (size_t i = 0; i < WORDS; i++)
        if (((volatile uint64_t *)at(page))[i] != mix(seed ^ page << 9 ^ i)) {
            printf("WRONG: page %zu word %zu is neither right nor lost\n", page, i);
            exit(1);
        }
    return 0;
}

#define FAULTS(call)                                                                             \
    do {                                                                                         \
        errno = 0;                                                                               \
        long ret = (long)(call);                                                                 \
        if (ret != -1 || errno != EFAULT) {                                                      \
            printf("WRONG: %s = %ld, %s\n", #call, ret, strerror(errno));                        \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static void system_calls(char *page) {
    int zero = open("/dev/zero", O_RDONLY), pipes[2], sockets[2];
    if (zero < 0 || pipe(pipes) || socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets))
        exit(2);
    char here[16] = "here";
    struct iovec both[2] = {{here, sizeof here}, {page, PAGE}};
    struct iovec behind = {page, PAGE};
    struct msghdr message = {.msg_iov = &behind, .msg_iovlen = 1};
    struct stat *stat_there = (struct stat *)(page + 512);
    FAULTS(write(pipes[1], page, PAGE));
    FAULTS(read(zero, page, PAGE));
    FAULTS(pread(zero, page, PAGE, 0));
    FAULTS(writev(pipes[1], both + 1, 1));
    FAULTS(readv(zero, both + 1, 1));
    FAULTS(writev(pipes[1], (struct iovec *)page, 1));
    FAULTS(sendmsg(sockets[0], &message, 0));
    FAULTS(send(sockets[0], page, 100, 0));
    FAULTS(getrandom(page, 100, 0));
    FAULTS(open(page, O_RDONLY));
    FAULTS(fstat(zero, stat_there));
    FAULTS(pipe((int *)page));
    // What precedes the lost page may have been transferred.
    ssize_t moved = writev(pipes[1], both, 2);
    if (moved != sizeof here && (moved != -1 || errno != EFAULT)) {
        printf("WRONG: writev of two moved %zd\n", moved);
        exit(1);
    }
    // Nothing was taken from those who wait for it.
    if (write(sockets[0], here, sizeof here) != sizeof here)
        exit(2);
    FAULTS(recv(sockets[1], page, PAGE, 0));
    close(zero), close(pipes[0]), close(pipes[1]), close(sockets[0]), close(sockets[1]);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    pages = strtoull(argv[1], NULL, 10) << 8;
    uint64_t seed = strtoull(argv[2], NULL, 10) << 40;
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < WORDS; i++)
            at(page)[i] = mix(seed ^ page << 9 ^ i);
    int nr_lost = 0;
    for (size_t page = 0; page < pages && nr_lost < NR_TRIED; page++) {
        if (!is_lost(page, seed))
            continue;
        nr_lost++;
        system_calls((char *)at(page));
        pid_t child = fork();
        if (!child)
            _exit(!is_lost(page, seed));
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status) {
            printf("WRONG: page %zu is not lost in a child\n", page);
            return 1;
        }
        if (!is_lost(page, seed)) {
            printf("WRONG: page %zu is back\n", page);
            return 1;
        }
        if (nr_lost % 2)
            mmap(at(page), PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        else
            madvise(at(page), PAGE, MADV_DONTNEED);
        expected = 0;
        for (size_t i = 0; i < WORDS; i++)
            if (at(page)[i]) {
                printf("WRONG: page %zu word %zu is not new\n", page, i);
                return 1;
            }
    }
    printf("lost %d: right\n", nr_lost);
    return 0;
}
