// interrupted MIB SECONDS
//
// What: page faults in awkward places: inside malloc (its own records are evicted), inside printf
// (the stream's buffer is evicted), while the program holds a lock that a signal handler's thread
// also wants, inside signal handlers on the normal and on an alternate stack, with signals
// blocked, and in threads that are exiting (destructors of thread-local keys). Timers and other
// threads send signals all the while. Everything touched is checked.
//
// Exit status: 0 all was right, 1 it was not.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static uint64_t nr_pages;
static uint64_t *memory;
static atomic_ulong in_handler, in_exit, allocations, prints;
static atomic_int stop, wrong;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void complain(const char *what) {
    // Not printf: this may run in a handler.
    if (write(2, what, strlen(what)) < 0)
        _exit(9);
    if (write(2, "\n", 1) < 0)
        _exit(9);
    wrong = 1;
}

// Word 0 of each page is its number for ever, word 1 is anybody's.
static void touch(uint64_t rng) {
    uint64_t page = rng % nr_pages;
    if (memory[page * 512] != page)
        complain("WRONG page number");
    atomic_fetch_add((_Atomic uint64_t *)&memory[page * 512 + 1], 1);
}

static void handler(int signal) {
    static _Thread_local uint64_t rng;
    int saved = errno;
    errno = 4242;
    for (int i = 0; i < 3; i++)
        touch(rng = mix(rng + (uint64_t)signal));
    if (errno != 4242)
        complain("WRONG errno in a handler");
    errno = saved;
    atomic_fetch_add(&in_handler, 1);
}

static pthread_key_t key;

static void at_thread_exit(void *p) {
    for (int i = 0; i < 20; i++)
        touch(mix((uintptr_t)p + i));
    free(malloc(10000));
    atomic_fetch_add(&in_exit, 1);
}

static void *short_thread(void *arg) {
    pthread_setspecific(key, (void *)((uintptr_t)arg | 1));
    // Signals stay blocked to the end, as many programs do in a thread that is about to exit.
    if ((uintptr_t)arg % 2) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    for (int i = 0; i < 20; i++)
        touch(mix((uintptr_t)arg * 31 + i));
    return NULL;
}

static void *starts_threads(void *arg) {
    (void)arg;
    for (uintptr_t n = 0; !stop; n++) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&t[i], NULL, short_thread, (void *)(n * 4 + i)))
                complain("WRONG: pthread_create");
        for (int i = 0; i < 4; i++)
            pthread_join(t[i], NULL);
    }
    return NULL;
}

static void *allocates(void *arg) {
    uint64_t rng = mix((uintptr_t)arg);
    stack_t alt = {.ss_size = 65536, .ss_sp = malloc(65536)};
    if (arg)
        sigaltstack(&alt, NULL);
    enum { N = 4096 };
    unsigned char **kept = calloc(N, sizeof *kept);
    size_t *lens = calloc(N, sizeof *lens);
    while (!stop) {
        rng = mix(rng);
        unsigned i = rng % N;
        if (kept[i] && (kept[i][0] != (unsigned char)i || kept[i][lens[i] - 1] != (unsigned char)i))
            complain("WRONG allocation");
        size_t len = rng >> 20 & 1 ? 1 + (rng >> 32) % 200 : 1 + (rng >> 32) % 20000;
        if (rng >> 21 & 1) {
            free(kept[i]);
            kept[i] = malloc(len);
        } else {
            kept[i] = realloc(kept[i], len);
        }
        lens[i] = len;
        kept[i][0] = kept[i][len - 1] = (unsigned char)i;
        allocations++;
        touch(rng);
    }
    stack_t off = {.ss_flags = SS_DISABLE};
    if (arg)
        sigaltstack(&off, NULL);
    return NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *prints_under_lock(void *arg) {
    (void)arg;
    FILE *out = fopen("/dev/null", "w");
    char *line = NULL;
    size_t room = 0;
    FILE *in = tmpfile();
    for (uint64_t n = 0; !stop; n++) {
        pthread_mutex_lock(&lock);
        char *big = malloc(3000);
        memset(big, 'x', 2999);
        big[2999] = 0;
        fprintf(out, "%s %lu %f %s\n", big, n, (double)n, "end");
        if (n % 64 == 0) {
            rewind(in);
            fprintf(in, "line %lu\n", n);
            fflush(in);
            rewind(in);
            char want[64];
            snprintf(want, sizeof want, "line %lu\n", n);
            if (getline(&line, &room, in) < 0 || strcmp(line, want))
                complain("WRONG line");
        }
        free(big);
        for (int i = 0; i < 10; i++)
            touch(mix(n * 10 + i));
        pthread_mutex_unlock(&lock);
        prints++;
    }
    free(line);
    fclose(in);
    fclose(out);
    return NULL;
}

int main(int argc, char **argv) {
    nr_pages = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * 256;
    unsigned seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
    memory = mmap(NULL, nr_pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (uint64_t page = 0; page < nr_pages; page++)
        for (unsigned i = 0; i < 512; i++)
            memory[page * 512 + i] = page;
    pthread_key_create(&key, at_thread_exit);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR2, &action, NULL);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[5];
    pthread_create(&threads[0], NULL, allocates, NULL);
    pthread_create(&threads[1], NULL, allocates, (void *)1);
    pthread_create(&threads[2], NULL, starts_threads, NULL);
    pthread_create(&threads[3], NULL, prints_under_lock, NULL);
    pthread_create(&threads[4], NULL, prints_under_lock, NULL);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned n = 0;; n++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec >= (time_t)seconds)
            break;
        pthread_kill(threads[n % 5], n % 2 ? SIGUSR1 : SIGUSR2);
        for (int i = 0; i < 5; i++)
            touch(mix(n * 5 + i));
        usleep(500);
    }
    stop = 1;
    for (int t = 0; t < 5; t++)
        pthread_join(threads[t], NULL);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    for (uint64_t page = 0; page < nr_pages; page++)
        if (memory[page * 512] != page || memory[page * 512 + 511] != page)
            complain("WRONG page at the end");
    int enough = in_handler > 10 && in_exit > 10 && allocations > 10 && prints > 10;
    fprintf(stderr, "handlers %lu, exits %lu, allocations %lu, prints %lu\n", in_handler, in_exit,
            allocations, prints);
    printf("interrupted: %s\n", wrong ? "WRONG" : enough ? "right" : "too little happened");
    return wrong || !enough;
}
