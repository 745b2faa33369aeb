/* Calls from sites that are called often, which uzswap may rewrite: registers, vector registers and
 * flags come back; a handler sees an address of the program's own text and every call as it would
 * be; a cancelled thread is cancelled; threads that meet a site while it changes get their results.
 *
 *     sites CALLS */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #cond, strerror(errno));                \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static volatile unsigned nr_signals, nr_strange;
static uintptr_t engine_from = 0x0ffd00000000, engine_to = 0x100000000000;
extern char __executable_start, etext;
#ifdef NO_ROOM
/* Where ramps would have to lie that are reached by a short instruction. */
char behind_the_text[256 << 20];
#endif

/* No handler may see the code that stands for a site: neither uzswap's, nor a ramp beside the
 * program, nor a stack of uzswap's. */
static void tick(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t ip = regs[REG_RIP], sp = regs[REG_RSP];
    int here = ip >= (uintptr_t)&__executable_start && ip < (uintptr_t)&etext;
    int far_up = ip >= 0x700000000000;
    if (!here && !far_up) nr_strange++;
    if (sp >= engine_from && sp < engine_to) nr_strange++;
    nr_signals++;
}

static uint64_t mix(uint64_t n) { return (n + 1) * 0x9e3779b97f4a7c15u >> 13; }

/* getpid with known values in all registers; the number, or 0 if one of them has changed. */
uint64_t call_with(const uint64_t in[16][2], uint64_t out[16][2], uint64_t *flags);
__asm__(
    ".text\n .type call_with, @function\n call_with:\n"
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "push %rdx\n push %rsi\n"
    "movups 0x0(%rdi), %xmm0\n"
    "movups 0x10(%rdi), %xmm1\n"
    "movups 0x20(%rdi), %xmm2\n"
    "movups 0x30(%rdi), %xmm3\n"
    "movups 0x40(%rdi), %xmm4\n"
    "movups 0x50(%rdi), %xmm5\n"
    "movups 0x60(%rdi), %xmm6\n"
    "movups 0x70(%rdi), %xmm7\n"
    "movups 0x80(%rdi), %xmm8\n"
    "movups 0x90(%rdi), %xmm9\n"
    "movups 0xa0(%rdi), %xmm10\n"
    "movups 0xb0(%rdi), %xmm11\n"
    "movups 0xc0(%rdi), %xmm12\n"
    "movups 0xd0(%rdi), %xmm13\n"
    "movups 0xe0(%rdi), %xmm14\n"
    "movups 0xf0(%rdi), %xmm15\n"
    /* Below the stack pointer: the red zone. */
    "movq $0x5ead5ead, -64(%rsp)\n"
    "push (%rdx)\n popfq\n"
    "mov $11, %rdi\n"
    "mov $12, %rsi\n"
    "mov $13, %rdx\n"
    "mov $14, %r10\n"
    "mov $15, %r8\n"
    "mov $16, %r9\n"
    "mov $17, %rbx\n"
    "mov $18, %rbp\n"
    "mov $19, %r12\n"
    "mov $20, %r13\n"
    "mov $21, %r14\n"
    "mov $22, %r15\n"
    "mov $39, %eax\n"
    "syscall\n"
    "pushfq\n pop %rcx\n"
    "cmp $11, %rdi\n jne 1f\n"
    "cmp $12, %rsi\n jne 1f\n"
    "cmp $13, %rdx\n jne 1f\n"
    "cmp $14, %r10\n jne 1f\n"
    "cmp $15, %r8\n jne 1f\n"
    "cmp $16, %r9\n jne 1f\n"
    "cmp $17, %rbx\n jne 1f\n"
    "cmp $18, %rbp\n jne 1f\n"
    "cmp $19, %r12\n jne 1f\n"
    "cmp $20, %r13\n jne 1f\n"
    "cmp $21, %r14\n jne 1f\n"
    "cmp $22, %r15\n jne 1f\n"
    "cmpq $0x5ead5ead, -64(%rsp)\n je 2f\n"
    "1: xor %eax, %eax\n"
    "2: pop %rdi\n pop %rdx\n mov %rcx, (%rdx)\n"
    "movups %xmm0, 0x0(%rdi)\n"
    "movups %xmm1, 0x10(%rdi)\n"
    "movups %xmm2, 0x20(%rdi)\n"
    "movups %xmm3, 0x30(%rdi)\n"
    "movups %xmm4, 0x40(%rdi)\n"
    "movups %xmm5, 0x50(%rdi)\n"
    "movups %xmm6, 0x60(%rdi)\n"
    "movups %xmm7, 0x70(%rdi)\n"
    "movups %xmm8, 0x80(%rdi)\n"
    "movups %xmm9, 0x90(%rdi)\n"
    "movups %xmm10, 0xa0(%rdi)\n"
    "movups %xmm11, 0xb0(%rdi)\n"
    "movups %xmm12, 0xc0(%rdi)\n"
    "movups %xmm13, 0xd0(%rdi)\n"
    "movups %xmm14, 0xe0(%rdi)\n"
    "movups %xmm15, 0xf0(%rdi)\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

static void registers_come_back(int calls) {
    static uint64_t in[16][2], out[16][2];
    for (int i = 0; i < 16; i++) in[i][0] = 0x1111111111111111u * i + 5, in[i][1] = ~in[i][0];
    uint64_t pid = getpid();
    for (int i = 0; i < calls; i++) {
        /* Carry, parity, adjust, zero, sign and overflow, some of them. */
        uint64_t mask = 0x8d5, wanted = mix(i) & mask, flags = 0x202 | wanted;
        MUST(call_with(in, out, &flags) == pid);
        MUST((flags & mask) == wanted);
        MUST(memcmp(in, out, sizeof in) == 0);
    }
}

/* Every byte of a pipe arrives once and in order, by memory of the heap and of the stack. */
static void bytes_arrive_once(int calls) {
    int ends[2];
    MUST(pipe(ends) == 0);
    uint8_t *heap = malloc(1 << 16), stack[64];
    for (int i = 0; i < calls; i++) {
        memset(heap + i % 60000, i, 64);
        MUST(write(ends[1], heap + i % 60000, 64) == 64);
        uint8_t *to = i % 2 ? stack : heap + (i + 977) % 60000;
        MUST(read(ends[0], to, 64) == 64);
        for (int k = 0; k < 64; k++) MUST(to[k] == (uint8_t)i);
    }
    free(heap);
    close(ends[0]), close(ends[1]);
}

/* Errors that are the program's own. */
static void errors_are_kept(int calls) {
    int ends[2];
    void *volatile nowhere = (void *)16;
    MUST(pipe(ends) == 0);
    for (int i = 0; i < calls; i++) {
        MUST(write(ends[1], nowhere, 8) == -1 && errno == EFAULT);
        MUST(write(-1, "x", 1) == -1 && errno == EBADF);
        MUST(close(961) == -1 && errno == EBADF);
    }
    close(ends[0]), close(ends[1]);
}

/* Sites of their own, each called so often that it is rewritten while other threads are there. */
#define SITE(n)                                                                                    \
    static long site_##n(void) {                                                                   \
        long ret;                                                                                  \
        __asm__ volatile("mov $110, %%eax\n syscall" : "=&a"(ret) : : "rcx", "r11", "memory");     \
        return ret;                                                                                \
    }
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
EIGHT(SITE, 0) EIGHT(SITE, 1) EIGHT(SITE, 2) EIGHT(SITE, 3)
#define NAME(n) site_##n,
static long (*const sites[])(void) = {EIGHT(NAME, 0) EIGHT(NAME, 1) EIGHT(NAME, 2) EIGHT(NAME, 3)};
static long parent;

static void *call_sites(void *calls) {
    for (size_t s = 0; s < sizeof sites / sizeof *sites; s++)
        for (intptr_t i = 0; i < (intptr_t)calls; i++) MUST(sites[s]() == parent);
    return NULL;
}

static void threads_meet(int calls) {
    pthread_t threads[4];
    parent = getppid();
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], NULL, call_sites, (void *)(intptr_t)calls) == 0);
    for (int i = 0; i < 4; i++) MUST(pthread_join(threads[i], NULL) == 0);
}

/* A thread that reads, or waits in a read, is cancelled. */
static int waited[2];
static void *waits(void *buffer) {
    for (int i = 0; i < 200; i++) {
        MUST(write(waited[1], "x", 1) == 1);
        MUST(read(waited[0], buffer, 1) == 1);
    }
    for (;;) MUST(read(waited[0], buffer, 1) == 1);
    return buffer;
}

static void threads_are_cancelled(int times) {
    char *buffer = malloc(4096);
    for (int i = 0; i < times; i++) {
        pthread_t thread;
        void *result;
        MUST(pipe(waited) == 0);
        MUST(pthread_create(&thread, NULL, waits, buffer) == 0);
        usleep(2000);
        MUST(pthread_cancel(thread) == 0);
        MUST(pthread_join(thread, &result) == 0);
        MUST(result == PTHREAD_CANCELED);
        close(waited[0]), close(waited[1]);
    }
    free(buffer);
}

int main(int argc, char **argv) {
    int calls = argc > 1 ? atoi(argv[1]) : 10000;
    struct sigaction action = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval every = {{0, 700}, {0, 700}};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    MUST(setitimer(ITIMER_REAL, &every, NULL) == 0);
    registers_come_back(calls);
    bytes_arrive_once(calls);
    errors_are_kept(calls / 10);
    threads_meet(200);
    pid_t child = fork();
    if (child == 0) {
        parent = getppid();
        call_sites((void *)10);
        threads_meet(20);
        bytes_arrive_once(calls / 10);
        _exit(7);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) MUST(errno == EINTR);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    struct itimerval never = {0};
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    threads_are_cancelled(20);
    MUST(nr_strange == 0);
    MUST(nr_signals > 0);
    puts("right");
    return 0;
}
