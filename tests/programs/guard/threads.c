/* Threads: cancelled, jumping, exiting and many, with their memory evicted. */
#include "story.h"
#include <threads.h>

static int fds[2];
static unsigned char *data;
static volatile int cleaned;
static volatile int waiting;

static void clean(void *arg) {
    cleaned += *(int *)arg;
    evict(data, PAGE);
    data[0] = 1;
}

static void *blocked_reader(void *arg) {
    int one = 1;
    pthread_cleanup_push(clean, &one);
    evict(data, 4 * PAGE);
    waiting = 1;
    if (arg) {
        struct iovec v[2] = {{data, 100}, {data + PAGE, 100}};
        readv(fds[0], v, 2);
    } else {
        read(fds[0], data, 3 * PAGE);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels such a reader while it waits: it has cleaned up and taken nothing from the pipe. */
static void cancel_while_waiting(void *(*reader)(void *), void *arg) {
    pthread_t t;
    void *ret;
    cleaned = 0;
    waiting = 0;
    CHECK(pthread_create(&t, NULL, reader, arg) == 0);
    while (!waiting) sched_yield();
    sleep_ms(5);
    CHECK(pthread_cancel(t) == 0);
    CHECK(pthread_join(t, &ret) == 0);
    CHECK(ret == PTHREAD_CANCELED);
    CHECK(cleaned == 1);
}

static void cancels(void) {
    for (int i = 0; i < 20; i++) cancel_while_waiting(blocked_reader, i % 2 ? data : NULL);
    CHECK(write(fds[1], "whole", 5) == 5);
    evict(data, PAGE);
    CHECK(read(fds[0], data, 100) == 5 && memcmp(data, "whole", 5) == 0);
}

/* May be cancelled anywhere. */
static void *asynchronous_reader(void *arg) {
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    return blocked_reader(arg);
}

static void cancels_at_once(void) {
    for (int i = 0; i < 10; i++) cancel_while_waiting(asynchronous_reader, i % 2 ? data : NULL);
    CHECK(write(fds[1], "kept", 4) == 4);
    CHECK(read(fds[0], data, 100) == 4 && memcmp(data, "kept", 4) == 0);
}

static void *not_cancellable(void *arg) {
    (void)arg;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    evict(data, PAGE);
    CHECK(read(fds[0], data, 10) == 3);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    pthread_testcancel();
    return NULL;
}

static void cancels_that_wait(void) {
    pthread_t t;
    void *ret;
    CHECK(pthread_create(&t, NULL, not_cancellable, NULL) == 0);
    sleep_ms(5);
    CHECK(pthread_cancel(t) == 0);
    sleep_ms(5);
    CHECK(write(fds[1], "abc", 3) == 3);
    CHECK(pthread_join(t, &ret) == 0 && ret == PTHREAD_CANCELED);
}

static void *brief(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    unsigned char *p = fresh(4 * PAGE);
    fill(p, 4 * PAGE, seed);
    evict(p, 4 * PAGE);
    CHECK(is_filled(p, 4 * PAGE, seed));
    stack_t ss;
    CHECK(sigaltstack(NULL, &ss) == 0 && (ss.ss_flags & SS_DISABLE));
    munmap(p, 4 * PAGE);
    if (seed % 2)
        pthread_exit((void *)(uintptr_t)(seed + 1));
    return (void *)(uintptr_t)(seed + 1);
}

static void many(void) {
    for (int round = 0; round < 20; round++) {
        pthread_t t[50];
        for (uintptr_t i = 0; i < 50; i++)
            CHECK(pthread_create(&t[i], NULL, brief, (void *)i) == 0);
        for (uintptr_t i = 0; i < 50; i++) {
            void *ret;
            CHECK(pthread_join(t[i], &ret) == 0 && ret == (void *)(i + 1));
        }
    }
}

static int with_int(void *arg) {
    evict(data, PAGE);
    data[1] = 1;
    return -*(int *)arg;
}

static void c11(void) {
    thrd_t t;
    int value = 42, ret;
    CHECK(thrd_create(&t, with_int, &value) == thrd_success);
    CHECK(thrd_join(t, &ret) == thrd_success && ret == -42);
}

static void *on_given_stack(void *arg) {
    char local[5000];
    memset(local, 5, sizeof local);
    for (int i = 0; i < 50; i++) {
        evict((char *)arg, 1 << 20);
        struct stat st;
        CHECK(stat("/", &st) == 0);
        evict(local, sizeof local);
        void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        CHECK(munmap(p, PAGE) == 0);
        sched_yield();
        for (size_t k = 0; k < sizeof local; k++)
            CHECK(local[k] == 5);
    }
    pid_t child = fork();
    if (child == 0) {
        for (size_t k = 0; k < sizeof local; k++)
            CHECK(local[k] == 5);
        _exit(3);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    return arg;
}

/* A thread whose stack may be evicted. */
static void given_stacks(void) {
    char *stack = fresh(1 << 20);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstack(&attr, stack, 1 << 20) == 0);
    pthread_t t;
    void *ret;
    CHECK(pthread_create(&t, &attr, on_given_stack, stack) == 0);
    CHECK(pthread_join(t, &ret) == 0 && ret == stack);
    /* And one as small as it may be. */
    pthread_attr_t small;
    pthread_attr_init(&small);
    CHECK(pthread_attr_setstacksize(&small, 16384) == 0);
    CHECK(pthread_create(&t, &small, brief, (void *)8) == 0);
    CHECK(pthread_join(t, &ret) == 0 && ret == (void *)9);
}

static volatile int hits;
static void count(int sig) {
    (void)sig;
    __atomic_fetch_add(&hits, 1, __ATOMIC_RELAXED);
}

static volatile int done;
static void *reader(void *arg) {
    unsigned char *b = arg;
    long sum = 0;
    while (!done) {
        evict(b, 2 * PAGE);
        ssize_t n = read(fds[0], b, 2 * PAGE);
        if (n == -1) {
            CHECK(errno == EINTR);
            continue;
        }
        for (ssize_t i = 0; i < n; i++)
            sum += b[i];
    }
    return (void *)sum;
}

/* Signals rain on threads that read: every byte arrives once. */
static void rain(void) {
    struct sigaction sa = {.sa_handler = count};
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    sa.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR2, &sa, NULL) == 0);
    pthread_t t[3];
    done = 0;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, reader, data + (size_t)i * 4 * PAGE) == 0);
    long sent = 0;
    unsigned char out[300];
    memset(out, 1, sizeof out);
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 3; k++)
            CHECK(pthread_kill(t[k], i % 2 ? SIGUSR1 : SIGUSR2) == 0);
        size_t n = (size_t)(i % 300) + 1;
        CHECK(write(fds[1], out, n) == (ssize_t)n);
        sent += (long)n;
    }
    for (;;) {
        struct pollfd p = {.fd = fds[0], .events = POLLIN};
        if (poll(&p, 1, 0) == 0)
            break;
        sched_yield();
    }
    sleep_ms(20);
    done = 1;
    long got = 0;
    for (int k = 0; k < 3; k++) {
        /* Wakes it, one way or the other. */
        CHECK(write(fds[1], "", 1) == 1);
        pthread_kill(t[k], SIGUSR1);
    }
    for (int k = 0; k < 3; k++) {
        struct timespec until;
        void *ret;
        for (;;) {
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 20000000;
            if (until.tv_nsec >= 1000000000) {
                until.tv_nsec -= 1000000000;
                until.tv_sec++;
            }
            if (pthread_timedjoin_np(t[k], &ret, &until) == 0)
                break;
            pthread_kill(t[k], SIGUSR1);
        }
        got += (long)ret;
    }
    CHECK(got == sent);
    CHECK(hits > 100);
}

int main(void) {
    data = fresh(64 * PAGE);
    CHECK(pipe(fds) == 0);
    TELL(cancels_at_once());
    TELL(cancels());
    TELL(cancels_that_wait());
    TELL(many());
    TELL(c11());
    TELL(given_stacks());
    TELL(rain());
    return 0;
}
