/* Takes MIB of memory that uzswap does not manage, says "held", and ends at SIGTERM.
 *
 *     outside fixed|shared|forked|stacks|plain MIB
 *
 * fixed: anonymous, mapped at a fixed address. shared: a memory file, which a forked child has
 * mapped and touched as well. forked: as fixed, and a forked child that has changed none of it.
 * stacks: stacks of 16 threads. plain: from malloc, for a static program. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR_THREADS 16
#define PAGE 4096

static size_t len;

static void touch(volatile char *at, size_t size)
{
    for (size_t i = 0; i < size; i += PAGE)
        at[i] = (char)(i / PAGE | 1);
}

static char *checked(char *at)
{
    if (at == MAP_FAILED || at == NULL) {
        perror("outside");
        exit(1);
    }
    return at;
}

static char *fixed(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    char *at = checked(mmap((void *)0x200000000000, len, PROT_READ | PROT_WRITE, flags, -1, 0));
    touch(at, len);
    return at;
}

static char *shared(void)
{
    int fd = memfd_create("outside", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)len) != 0)
        checked(NULL);
    char *at = checked(mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    touch(at, len);
    return at;
}

static void *thread(void *barrier)
{
    size_t size = len / NR_THREADS;
    volatile char stack[size];
    touch(stack, size);
    pthread_barrier_wait(barrier);
    pause();
    return NULL;
}

static void stacks(void)
{
    static pthread_barrier_t barrier;
    pthread_attr_t attributes;
    pthread_t id;
    pthread_barrier_init(&barrier, NULL, NR_THREADS + 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, len / NR_THREADS + (64 << 10));
    for (int i = 0; i < NR_THREADS; i++)
        if (pthread_create(&id, &attributes, thread, &barrier) != 0)
            exit(1);
    pthread_barrier_wait(&barrier);
}

/* A child that reads, and with `change` changes, what lies at `at`. */
static void fork_child(char *at, int change)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        exit(1);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (size_t i = 0; i < len; i += PAGE)
            byte ^= ((volatile char *)at)[i];
        if (change)
            touch(at, len);
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
}

int main(int argc, char **argv)
{
    sigset_t term;
    int number;
    if (argc != 3)
        return 2;
    len = (size_t)atoi(argv[2]) << 20;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (!strcmp(argv[1], "fixed"))
        fixed();
    else if (!strcmp(argv[1], "shared"))
        fork_child(shared(), 1);
    else if (!strcmp(argv[1], "forked"))
        fork_child(fixed(), 0);
    else if (!strcmp(argv[1], "stacks"))
        stacks();
    else if (!strcmp(argv[1], "plain"))
        touch(checked(malloc(len)), len);
    else
        return 2;
    puts("held");
    fflush(stdout);
    return sigwait(&term, &number);
}
