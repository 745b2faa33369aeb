/* Steps with a second process, several threads, or a signal handler. */
#ifndef PROCESS_STEPS_H
#define PROCESS_STEPS_H
#include <sys/socket.h>

static void steps(struct actor *a, int nr);

static void open_files(struct actor *a) {
    a->memfd = memfd_create("fuzz", 0);
    MUST(a->memfd >= 0 && ftruncate(a->memfd, FILE_PAGES * PAGE) == 0);
    for (int i = 0; i < FILE_PAGES; i++) {
        uint8_t page[PAGE];
        pattern(page, PAGE, 4 * i + i % 3);
        MUST(pwrite(a->memfd, page, PAGE, i * PAGE) == PAGE);
    }
    MUST(pipe2(a->pipe, O_NONBLOCK) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a->stream) == 0);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, a->dgram) == 0);
}
static void close_files(struct actor *a) {
    const int fds[] = {a->memfd, a->pipe[0], a->pipe[1], a->stream[0], a->stream[1], a->dgram[0], a->dgram[1]};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) close(fds[i]);
}

/* What the program does to a child's memory meanwhile must not be seen by the child, nor the other
 * way round. What both share they do not touch at once. */
static void step_fork(struct actor *a) {
    int told[2], said[2], nr = 1 + below(a, 6);
    if (a->depth > 1) return;
    say(a, "fork\n");
    MUST(pipe(told) == 0 && pipe(said) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char go;
        close(told[1]);
        MUST(read(told[0], &go, 1) == 1);
        a->depth++;
        a->len = 0;
        int was = a->memfd;
        close_files(a);
        open_files(a);
        (void)was;
        say_windows(a);
        steps(a, nr);
        for (size_t done = 0; done < a->len;) {
            ssize_t n = write(said[1], a->text + done, a->len - done);
            MUST(n > 0);
            done += n;
        }
        _exit(17);
    }
    close(told[0]), close(said[1]);
    for (int i = below(a, 3); i > 0; i--) {
        struct range r = any_range(a);
        /* What is shared stays as it is. */
        for (int k = 0; k < r.nr; k++)
            if (pages[r.first + k].kind == PRIVATE) fill(a, (struct range){r.first + k, 1});
    }
    MUST(write(told[1], "g", 1) == 1);
    /* How often it reads is chance. */
    uint64_t kept = a->random;
    for (;;) {
        struct range r = mappable_range(a);
        if (chance(a, 2)) madvise(at(r.first), r.nr * PAGE, MADV_PAGEOUT);
        MUST(a->room - a->len > 4096);
        ssize_t n = read(said[0], a->text + a->len, a->room - a->len - 1);
        if (n <= 0) break;
        a->len += n;
    }
    a->random = kept;
    int status;
    MUST(waitpid(child, &status, 0) == child);
    close(told[1]), close(said[0]);
    say(a, "  child ended with %x", status);
    say_windows(a);
}

/* Threads would see through it what the others do. */
static void unmap_shared(struct actor *a) {
    for (int i = 0; i < MANAGED_PAGES; i++)
        if (pages[i].kind != NOTHING && pages[i].kind != PRIVATE) {
            MUST(munmap(at(i), PAGE) == 0);
            unmapped(a, (struct range){i, 1});
        }
}

static void *thread(void *arg) {
    struct actor *a = arg;
    steps(a, 12);
    return NULL;
}

/* Each has a part of the managed window of its own; all of it is evicted meanwhile. */
static void step_threads(struct actor *a) {
    static struct actor actors[THREADS];
    static char texts[THREADS][1 << 18];
    static uint8_t buffers[THREADS][BUFFER];
    pthread_t threads[THREADS];
    if (a->depth > 0) return;
    say(a, "threads\n");
    unmap_shared(a);
    for (int i = 0; i < THREADS; i++) {
        struct actor *t = &actors[i];
        /* The page between is for calls that write beyond what they were given. */
        *t = (struct actor){.first = i * (MANAGED_PAGES / THREADS), .end = (i + 1) * (MANAGED_PAGES / THREADS) - 1};
        t->depth = 1, t->threaded = 1, t->random = mix(a->random + i);
        /* Numbers that nobody else gives. */
        t->next_vma = a->next_vma + (i + 1) * 100000;
        t->text = texts[i], t->room = sizeof texts[i], t->buffer = buffers[i];
        open_files(t);
    }
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, thread, &actors[i]) == 0);
    for (int i = 0; i < 30; i++) madvise(at(0), MANAGED_PAGES * PAGE, MADV_PAGEOUT);
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL) == 0);
        say(a, "thread %d\n%s", i, actors[i].text);
        close_files(&actors[i]);
    }
    a->next_vma += (THREADS + 1) * 100000;
}

static struct actor *handled_by;
static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    struct actor *a = handled_by;
    say(a, " handler");
    for (int i = 0; i < 3; i++) {
        struct range r = any_range(a);
        say_range(a, r);
        madvise(at(r.first), r.nr * PAGE, MADV_PAGEOUT);
    }
}

/* A handler that runs on a stack in a window, which was evicted. */
static void step_signal(struct actor *a) {
    enum { STACK_PAGES = 12 };
    struct range r = {any_page(a), STACK_PAGES};
    if (a->threaded || r.first + r.nr > last_of(a, r.first)) return;
    if (!all_usable(r, PROT_READ | PROT_WRITE)) return;
    say(a, "signal %d", r.first);
    struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t stack = {.ss_sp = at(r.first), .ss_size = STACK_PAGES * PAGE}, none = {.ss_flags = SS_DISABLE};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0 && sigaltstack(&stack, NULL) == 0);
    madvise(at(r.first), r.nr * PAGE, MADV_PAGEOUT);
    handled_by = a;
    /* The handler does not look at its own stack. */
    struct actor kept = *a;
    if (r.first < MANAGED_PAGES) a->first = windows[OUTSIDE].first;
    else a->end = MANAGED_PAGES;
    MUST(raise(SIGUSR1) == 0);
    a->first = kept.first, a->end = kept.end;
    MUST(sigaltstack(&none, NULL) == 0);
    fill(a, r);
}
#endif
