/* The program's own signals: handlers, masks, stacks, jumps, faults. */
#include "story.h"
#include <sys/epoll.h>
#include <ucontext.h>

static volatile sig_atomic_t hits;
static unsigned char *data;
static int pipe_fds[2];

static void count(int sig) {
    (void)sig;
    hits++;
}

static void set_handler(int sig, void (*h)(int), int flags) {
    struct sigaction sa = {.sa_flags = flags};
    sa.sa_handler = h;
    CHECK(sigaction(sig, &sa, NULL) == 0);
}

static void alarm_in_us(long us, long every) {
    struct itimerval t = {{0, every}, {0, us}};
    CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
}

static void empty_pipe(ssize_t left) {
    while (left > 0) {
        ssize_t got = read(pipe_fds[0], data, (size_t)left);
        CHECK(got > 0);
        left -= got;
    }
}

static void interrupted_reads(void) {
    set_handler(SIGALRM, count, 0);
    evict(data, 16 * PAGE);
    hits = 0;
    alarm_in_us(20000, 0);
    CHECK(read(pipe_fds[0], data, 100) == -1 && errno == EINTR && hits == 1);
    /* Restarted as often as it takes. */
    set_handler(SIGALRM, count, SA_RESTART);
    hits = 0;
    alarm_in_us(5000, 5000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sleep_ms(60);
        _exit(write(pipe_fds[1], "hello", 5) == 5 ? 0 : 1);
    }
    evict(data, 16 * PAGE);
    CHECK(read(pipe_fds[0], data, 100) == 5);
    CHECK(memcmp(data, "hello", 5) == 0);
    CHECK(hits >= 2);
    alarm_in_us(0, 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* Writes to a full pipe that are interrupted say how much was written. */
    set_handler(SIGALRM, count, 0);
    evict(data, 512 * PAGE);
    alarm_in_us(20000, 0);
    ssize_t n = write(pipe_fds[1], data, 512 * PAGE);
    CHECK(n > 0 && n < 512 * (ssize_t)PAGE);
    empty_pipe(n);
    /* From memory that is present, too. */
    fill(data, 15 * PAGE, 1);
    CHECK(write(pipe_fds[1], data, 15 * PAGE) == 15 * PAGE);
    alarm_in_us(20000, 0);
    n = write(pipe_fds[1], data, 15 * PAGE);
    CHECK(n > 0 && n < 15 * (ssize_t)PAGE);
    empty_pipe(15 * PAGE + n);
}

static sigjmp_buf jump;

static void jump_out(int sig) {
    (void)sig;
    siglongjmp(jump, 1);
}

/* Out of a blocking read again and again; nothing may pile up. */
static void jumps(void) {
    set_handler(SIGALRM, jump_out, 0);
    volatile int times = 0;
    while (times < 200) {
        if (sigsetjmp(jump, 1) == 0) {
            evict(data, 4 * PAGE);
            alarm_in_us(300, 0);
            char b;
            if (times % 2)
                read(pipe_fds[0], data, 3 * PAGE);
            else
                for (;;)
                    if (read(pipe_fds[0], data, 1) == -1 || read(pipe_fds[0], &b, 1) == -1)
                        break;
            CHECK(!"the read came back");
        }
        times++;
    }
    sigset_t now;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGALRM));
}

static void masks(void) {
    sigset_t *set = fresh(PAGE), *old = fresh(PAGE), now;
    sigfillset(set);
    evict(set, PAGE);
    evict(old, PAGE);
    CHECK(sigprocmask(SIG_SETMASK, set, old) == 0);
    CHECK(!sigismember(old, SIGUSR1));
    /* Faults are served all the same. */
    evict(data, 16 * PAGE);
    CHECK(data[5 * PAGE] == data[5 * PAGE]);
    set_handler(SIGUSR1, count, 0);
    hits = 0;
    CHECK(raise(SIGUSR1) == 0);
    CHECK(hits == 0);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    sigdelset(set, SIGUSR1);
    evict(set, PAGE);
    CHECK(sigsuspend(set) == -1 && errno == EINTR && hits == 1);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
    /* ppoll and its like with a mask. */
    CHECK(raise(SIGUSR1) == 0);
    struct pollfd p = {.fd = pipe_fds[0], .events = POLLIN};
    evict(set, PAGE);
    CHECK(ppoll(&p, 1, NULL, set) == -1 && errno == EINTR && hits == 2);
    CHECK(raise(SIGUSR1) == 0);
    evict(set, PAGE);
    CHECK(pselect(0, NULL, NULL, NULL, NULL, set) == -1 && errno == EINTR && hits == 3);
    CHECK(raise(SIGUSR1) == 0);
    int ep = epoll_create1(0);
    struct epoll_event ev;
    evict(set, PAGE);
    CHECK(epoll_pwait(ep, &ev, 1, -1, set) == -1 && errno == EINTR && hits == 4);
    close(ep);
    CHECK(raise(SIGUSR1) == 0);
    sigemptyset(set);
    sigaddset(set, SIGUSR1);
    siginfo_t *info = fresh(PAGE);
    evict(info, PAGE);
    evict(set, PAGE);
    CHECK(sigwaitinfo(set, info) == SIGUSR1 && info->si_pid == getpid());
    CHECK(hits == 4);
    evict(old, PAGE);
    CHECK(sigprocmask(SIG_SETMASK, old, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    for (int s = 1; s < 65; s++)
        CHECK(sigismember(&now, s) == sigismember(old, s));
    /* The mask of a handler is in force in it, and not after. */
    CHECK(sigprocmask(SIG_BLOCK, old, NULL) == 0);
}

static volatile sig_atomic_t seen_blocked, nested, order[4], at;

static void second(int sig) {
    (void)sig;
    order[at++] = 2;
}

static void first(int sig, siginfo_t *info, void *ctx) {
    (void)ctx;
    CHECK(sig == SIGUSR1 && info->si_signo == SIGUSR1 && info->si_code == SI_TKILL);
    sigset_t now;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    seen_blocked = sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2);
    raise(SIGUSR2);
    order[at++] = 1;
    evict(data, 4 * PAGE);
    CHECK(pread(pipe_fds[0], data, 1, 0) == -1 && errno == ESPIPE);
}

static void handlers(void) {
    struct sigaction sa = {.sa_flags = SA_SIGINFO}, old;
    sa.sa_sigaction = first;
    sigemptyset(&sa.sa_mask);
    sigaddset(&sa.sa_mask, SIGUSR2);
    struct sigaction *evicted = fresh(PAGE);
    *evicted = sa;
    evict(evicted, PAGE);
    CHECK(sigaction(SIGUSR1, evicted, NULL) == 0);
    set_handler(SIGUSR2, second, SA_RESETHAND);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0);
    CHECK(old.sa_sigaction == first && (old.sa_flags & SA_SIGINFO) &&
          sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGINT));
    CHECK(raise(SIGUSR1) == 0);
    CHECK(seen_blocked && at == 2 && order[0] == 1 && order[1] == 2);
    CHECK(sigaction(SIGUSR2, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(signal(SIGUSR1, SIG_IGN) == (void (*)(int))first);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(sigaction(SIGKILL, &sa, NULL) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, 16, 0, 8) == -1 && errno == EFAULT);
    CHECK(sigaction(77, &sa, NULL) == -1 && errno == EINVAL);
}

static void *volatile stack_seen;

static void note_stack(int sig) {
    (void)sig;
    int here;
    stack_seen = &here;
    evict(data, 2 * PAGE);
    data[0] = 7;
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

static void stacks(void) {
    /* A small one, itself in evicted memory. */
    size_t len = 16384;
    char *mem = fresh(len);
    stack_t ss = {.ss_sp = mem, .ss_size = len}, old;
    CHECK(sigaltstack(&ss, &old) == 0);
    CHECK(old.ss_flags & SS_DISABLE);
    CHECK(sigaltstack(NULL, &old) == 0);
    CHECK(old.ss_sp == mem && old.ss_size == len && old.ss_flags == 0);
    set_handler(SIGUSR1, note_stack, SA_ONSTACK);
    for (int i = 0; i < 20; i++) {
        evict(mem, len);
        stack_seen = NULL;
        CHECK(raise(SIGUSR1) == 0);
        CHECK((char *)stack_seen > mem && (char *)stack_seen < mem + len);
    }
    set_handler(SIGUSR1, note_stack, 0);
    CHECK(raise(SIGUSR1) == 0);
    int here;
    ptrdiff_t distance = (char *)&here - (char *)stack_seen;
    CHECK(distance > 0 && distance < 100000);
    ss.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&ss, NULL) == 0);
    CHECK(sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE));
    ss = (stack_t){.ss_sp = mem, .ss_size = 100};
    CHECK(sigaltstack(&ss, NULL) == -1 && errno == ENOMEM);
}

/* Where the stack is not mapped any more, a signal is the end, by SIGSEGV. */
static void a_stack_that_is_gone(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        stack_t ss = {.ss_sp = fresh(16384), .ss_size = 16384};
        CHECK(sigaltstack(&ss, NULL) == 0 && munmap(ss.ss_sp, ss.ss_size) == 0);
        set_handler(SIGUSR1, note_stack, SA_ONSTACK);
        raise(SIGUSR1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void note_only(int sig) {
    (void)sig;
    int here;
    stack_seen = &here;
}

/* A handler that interrupts a call on evicted memory runs where it would natively: on the stack of
 * the thread, below the function that made the call. Collectors scan from there. */
static void where_handlers_run(void) {
    set_handler(SIGALRM, note_only, 0);
    for (int i = 0; i < 5; i++) {
        int here;
        stack_seen = NULL;
        evict(data, 4 * PAGE);
        struct iovec v[2] = {{data, 100}, {data + PAGE, 100}};
        alarm_in_us(3000, 0);
        ssize_t n = i % 2 ? readv(pipe_fds[0], v, 2) : read(pipe_fds[0], data, 3 * PAGE);
        CHECK(n == -1 && errno == EINTR);
        ptrdiff_t distance = (char *)&here - (char *)stack_seen;
        CHECK(distance > 0 && distance < 100000);
    }
}

static ucontext_t main_context, coroutine;
static volatile long sum;

static void on_coroutine(void) {
    for (int i = 0; i < 200; i++) {
        char local[3000];
        memset(local, i, sizeof local);
        evict(local - 4 * PAGE, 6 * PAGE);
        raise(SIGUSR2);
        for (size_t k = 0; k < sizeof local; k++)
            sum += local[k] == (char)i;
        struct stat st;
        evict(&st, sizeof st);
        CHECK(stat("/", &st) == 0);
    }
}

/* Signals are delivered on an evicted stack. */
static void coroutines(void) {
    size_t len = 1 << 20;
    char *mem = fresh(len);
    set_handler(SIGUSR2, note_stack, 0);
    CHECK(getcontext(&coroutine) == 0);
    coroutine.uc_stack.ss_sp = mem;
    coroutine.uc_stack.ss_size = len;
    coroutine.uc_link = &main_context;
    makecontext(&coroutine, on_coroutine, 0);
    sum = 0;
    CHECK(swapcontext(&main_context, &coroutine) == 0);
    CHECK(sum == 200 * 3000);
    CHECK((char *)stack_seen > mem && (char *)stack_seen < mem + len);
}

static volatile double accumulator;

static void use_floats(int sig) {
    (void)sig;
    double x = 1;
    for (int i = 0; i < 50; i++)
        x = x * 1.01 + hits;
    accumulator = x;
    hits++;
}

/* Floating-point registers survive signals and faults. */
static void floats(void) {
    set_handler(SIGALRM, use_floats, SA_RESTART);
    hits = 0;
    alarm_in_us(500, 500);
    double *v = fresh(256 * PAGE);
    size_t n = 256 * PAGE / sizeof *v;
    for (size_t i = 0; i < n; i++)
        v[i] = (double)i * 0.5;
    double last = 0;
    for (int round = 0; hits < 50 || round < 5; round++) {
        evict(v, 256 * PAGE);
        double s[4] = {0};
        for (size_t i = 0; i < n; i += 4)
            for (int k = 0; k < 4; k++)
                s[k] += v[i + (size_t)k] * 1.25;
        double total = s[0] + s[1] + s[2] + s[3];
        CHECK(round == 0 || total == last);
        last = total;
    }
    alarm_in_us(0, 0);
}

static sigjmp_buf out_of_fault;
static siginfo_t fault_info;

static void on_fault(int sig, siginfo_t *info, void *ctx) {
    (void)sig;
    (void)ctx;
    fault_info = *info;
    siglongjmp(out_of_fault, sig);
}

static void *volatile bad;

static int touch(void *p) {
    bad = p;
    int sig = sigsetjmp(out_of_fault, 1);
    if (sig == 0) {
        *(volatile char *)bad = 1;
        return 0;
    }
    return sig;
}

static void faults(void) {
    struct sigaction sa = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    sa.sa_sigaction = on_fault;
    CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
    CHECK(sigaction(SIGBUS, &sa, NULL) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(touch((void *)24) == SIGSEGV);
        CHECK(fault_info.si_addr == (void *)24 && fault_info.si_code == SEGV_MAPERR);
    }
    char *gone = fresh(4 * PAGE);
    memset(gone, 1, 4 * PAGE);
    CHECK(munmap(gone, 4 * PAGE) == 0);
    CHECK(touch(gone + 5000) == SIGSEGV);
    CHECK(fault_info.si_addr == gone + 5000 && fault_info.si_code == SEGV_MAPERR);
    char *guarded = fresh(4 * PAGE);
    memset(guarded, 3, 4 * PAGE);
    CHECK(mprotect(guarded, PAGE, PROT_READ) == 0);
    evict(guarded, 4 * PAGE);
    CHECK(guarded[7] == 3);
    CHECK(touch(guarded + 7) == SIGSEGV);
    CHECK(fault_info.si_addr == guarded + 7 && fault_info.si_code == SEGV_ACCERR);
    CHECK(touch(guarded + PAGE) == 0);
    /* A real SIGBUS: a file mapping behind the end of its file. */
    int fd = scratch_file();
    CHECK(ftruncate(fd, 2 * PAGE) == 0);
    char *file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(file != MAP_FAILED);
    CHECK(touch(file + PAGE) == 0);
    CHECK(ftruncate(fd, PAGE) == 0);
    CHECK(touch(file + PAGE + 3) == SIGBUS);
    CHECK(fault_info.si_code == BUS_ADRERR && fault_info.si_addr == file + PAGE + 3);
    CHECK(kill(getpid(), 0) == 0);
    if (sigsetjmp(out_of_fault, 1) == 0) {
        kill(getpid(), SIGBUS);
        CHECK(!"SIGBUS was not delivered");
    }
    CHECK(fault_info.si_code == SI_USER && fault_info.si_pid == getpid());
    struct sigaction old;
    signal(SIGSEGV, SIG_DFL);
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_sigaction == on_fault);
    signal(SIGBUS, SIG_DFL);
    close(fd);
}

/* What ends a program ends it, with the right status. */
static int end_of(void (*how)(void)) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        how();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void die_null(void) {
    *(volatile char *)bad = 1;
}
static void die_bus(void) {
    int fd = scratch_file();
    char *file = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *(volatile char *)file = 1;
}
static void die_blocked(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    die_bus();
}
static void die_ignored(void) {
    signal(SIGSEGV, SIG_IGN);
    die_null();
}
static void die_term(void) {
    raise(SIGTERM);
}
static void die_abort(void) {
    abort();
}
static void die_unmapped(void) {
    char *p = fresh(PAGE);
    *p = 1;
    munmap(p, PAGE);
    *(volatile char *)p = 1;
}
static void die_sys(void) {
    raise(SIGSYS);
}

static void ends(void) {
    bad = (void *)24;
    int s = end_of(die_null);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV);
    s = end_of(die_bus);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGBUS);
    s = end_of(die_blocked);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGBUS);
    s = end_of(die_ignored);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV);
    s = end_of(die_term);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGTERM);
    s = end_of(die_abort);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGABRT);
    s = end_of(die_unmapped);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV);
    s = end_of(die_sys);
    CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGSYS);
}

int main(void) {
    data = fresh(512 * PAGE);
    fill(data, 512 * PAGE, 1);
    CHECK(pipe(pipe_fds) == 0);
    TELL(interrupted_reads());
    TELL(jumps());
    TELL(masks());
    TELL(handlers());
    TELL(stacks());
    TELL(a_stack_that_is_gone());
    TELL(where_handlers_run());
    TELL(coroutines());
    TELL(floats());
    TELL(faults());
    TELL(ends());
    return 0;
}
