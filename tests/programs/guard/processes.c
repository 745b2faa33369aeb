/* Forks, spawns and execs with everything evicted, from many threads. */
#include "story.h"
#include <spawn.h>
#include <stdarg.h>

extern char **environ;
static unsigned char *data;
/* Hides a value from the compiler. */
static void *volatile nowhere = (void *)16;
#define LEN (256 * PAGE)

static int status_of(pid_t child) {
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (getenv("STORY_TRACE") && WIFSIGNALED(status))
        fprintf(stderr, "child %d ended by signal %d\n", child, WTERMSIG(status));
    else if (getenv("STORY_TRACE"))
        fprintf(stderr, "child %d ended with %d\n", child, WEXITSTATUS(status));
    return status;
}

/* The child sees what was there, changes it, has a child of its own; the parent keeps its own. */
static void forks(void) {
    fill(data, LEN, 1);
    evict(data, LEN);
    pid_t child = fork();
    if (child == 0) {
        CHECK(is_filled(data, LEN, 1));
        fill(data, LEN, 2);
        evict(data, LEN);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            CHECK(is_filled(data, LEN, 2));
            fill(data, LEN, 3);
            evict(data, LEN);
            CHECK(is_filled(data, LEN, 3));
            unsigned char *mine = fresh(LEN);
            fill(mine, LEN, 4);
            evict(mine, LEN);
            int fd = scratch_file();
            evict(data, LEN);
            CHECK(write(fd, data, LEN) == (ssize_t)LEN);
            CHECK(pread(fd, mine, LEN, 0) == (ssize_t)LEN);
            CHECK(is_filled(mine, LEN, 3));
            exit(5);
        }
        CHECK(WEXITSTATUS(status_of(grandchild)) == 5);
        CHECK(is_filled(data, LEN, 2));
        exit(4);
    }
    /* While the child writes, so does the parent. */
    for (int i = 0; i < 3; i++) {
        CHECK(is_filled(data, LEN, 1));
        fill(data, LEN, 1);
        evict(data, LEN);
    }
    CHECK(WEXITSTATUS(status_of(child)) == 4);
    CHECK(is_filled(data, LEN, 1));
}

static volatile int stop;

static void *churn(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    unsigned char *mine = fresh(64 * PAGE);
    while (!stop) {
        fill(mine, 64 * PAGE, seed);
        evict(mine, 64 * PAGE);
        CHECK(is_filled(mine, 64 * PAGE, seed));
        char *s = malloc(1000 + seed);
        memset(s, 1, 1000 + seed);
        free(s);
        seed += 10;
    }
    return NULL;
}

static void *block(void *arg) {
    int *p = arg;
    evict(data, PAGE);
    char *b = fresh(PAGE);
    CHECK(read(p[0], b, 1) == 1);
    return NULL;
}

static void forks_of_many_threads(void) {
    pthread_t t[5];
    int p[2];
    CHECK(pipe(p) == 0);
    stop = 0;
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, churn, (void *)i) == 0);
    CHECK(pthread_create(&t[4], NULL, block, p) == 0);
    for (unsigned i = 0; i < 40; i++) {
        fill(data, 16 * PAGE, i);
        if (i % 2)
            evict(data, 16 * PAGE);
        pid_t child = fork();
        if (child == 0) {
            CHECK(is_filled(data, 16 * PAGE, i));
            evict(data, LEN);
            CHECK(is_filled(data, 16 * PAGE, i));
            char *s = malloc(100000);
            memset(s, 1, 100000);
            free(s);
            pthread_t inner;
            stop = 1;
            CHECK(pthread_create(&inner, NULL, churn, (void *)7) == 0);
            CHECK(pthread_join(inner, NULL) == 0);
            _exit(9);
        }
        CHECK(WEXITSTATUS(status_of(child)) == 9);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    CHECK(pthread_join(t[4], NULL) == 0);
    close(p[0]);
    close(p[1]);
}

/* Arguments and environment in memory that is out. */
static char **arguments(const char *first, ...) {
    char *strings = fresh(4 * PAGE);
    char **array = fresh(PAGE);
    va_list ap;
    va_start(ap, first);
    int n = 0;
    for (const char *s = first; s; s = va_arg(ap, const char *)) {
        strcpy(strings, s);
        array[n++] = strings;
        strings += strlen(s) + 1 + (n == 2 ? PAGE : 0);
    }
    va_end(ap);
    array[n] = NULL;
    evict(array[0], 4 * PAGE);
    evict(array, PAGE);
    return array;
}

static char **environment(void) {
    int n = 0;
    while (environ[n])
        n++;
    char **copy = fresh(4 * PAGE);
    char *at = fresh(64 * PAGE);
    for (int i = 0; i < n; i++) {
        copy[i] = at;
        strcpy(at, environ[i]);
        at += strlen(environ[i]) + 1;
    }
    copy[n] = at;
    strcpy(at, "STORY=told");
    copy[n + 1] = NULL;
    evict(copy[0], 64 * PAGE);
    evict(copy, 4 * PAGE);
    return copy;
}

static void execs(void) {
    for (volatile int way = 0; way < 4; way++) {
        char **argv = arguments("sh", "-c", "test \"$STORY $1\" = 'told argument' && exit 33", "sh",
                                "argument", NULL);
        char **envp = environment();
        pid_t child;
        if (way == 0) {
            child = fork();
            if (child == 0) {
                execve("/bin/sh", argv, envp);
                _exit(1);
            }
        } else if (way == 1) {
            child = vfork();
            if (child == 0) {
                execve("/nowhere/sh", argv, envp);
                execve("/bin/sh", argv, envp);
                _exit(1);
            }
        } else if (way == 2) {
            CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, argv, envp) == 0);
        } else {
            posix_spawn_file_actions_t fa;
            posix_spawn_file_actions_init(&fa);
            posix_spawn_file_actions_adddup2(&fa, 1, 2);
            posix_spawn_file_actions_addclosefrom_np(&fa, 3);
            CHECK(posix_spawnp(&child, "sh", &fa, NULL, argv, envp) == 0);
            posix_spawn_file_actions_destroy(&fa);
        }
        int status = status_of(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 33);
    }
    char **argv = arguments("nothing", NULL);
    CHECK(execve("/nowhere", argv, argv) == -1 && errno == ENOENT);
    CHECK(execv("/bin/sh", nowhere) == -1 && errno == EFAULT);
    pid_t child;
    CHECK(posix_spawn(&child, "/nowhere", NULL, NULL, argv, environ) == ENOENT);
}

static void shells(void) {
    int status = system("exit 7");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    FILE *f = popen("echo from below; cat >/dev/null </dev/null", "r");
    CHECK(f);
    char *line = fresh(PAGE);
    evict(line, PAGE);
    CHECK(fgets(line, PAGE, f) && strcmp(line, "from below\n") == 0);
    CHECK(pclose(f) == 0);
}

/* vfork children run on the parent's memory: what they touch is there, what they change stays. */
static void vforks(void) {
    fill(data, LEN, 6);
    for (int i = 0; i < 20; i++) {
        evict(data, LEN);
        pid_t child = vfork();
        if (child == 0) {
            data[5 * PAGE + (size_t)i] = 77;
            struct sigaction sa = {.sa_handler = SIG_DFL};
            sigaction(SIGUSR1, &sa, NULL);
            _exit(data[40 * PAGE] == pattern(40 * PAGE, 6) ? 3 : 1);
        }
        CHECK(WEXITSTATUS(status_of(child)) == 3);
        CHECK(data[5 * PAGE + (size_t)i] == 77);
    }
}

static volatile sig_atomic_t hits;
static void count(int sig) {
    (void)sig;
    hits++;
}

/* A child's changes to its signals are its own. */
static void signals_of_children(void) {
    struct sigaction sa = {.sa_handler = count};
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    int status = system("kill -USR1 $$; exit 1");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    pid_t child = vfork();
    if (child == 0) {
        struct sigaction dfl = {.sa_handler = SIG_IGN};
        sigaction(SIGUSR1, &dfl, NULL);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    hits = 0;
    CHECK(raise(SIGUSR1) == 0 && hits == 1);
    child = fork();
    if (child == 0) {
        CHECK(raise(SIGUSR1) == 0 && hits == 2);
        signal(SIGUSR1, SIG_DFL);
        raise(SIGUSR1);
        _exit(1);
    }
    status = status_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    CHECK(raise(SIGUSR1) == 0 && hits == 2);
    /* Ignored signals stay ignored over exec. */
    signal(SIGUSR1, SIG_IGN);
    status = system("kill -USR1 $$; exit 6");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);
}

/* Closing all descriptors closes none that faults need. */
static void closing(void) {
    pid_t child = fork();
    if (child == 0) {
        fill(data, LEN, 8);
        evict(data, LEN);
        for (int fd = 3; fd < 4096; fd++)
            close(fd);
        CHECK(is_filled(data, LEN, 8));
        evict(data, LEN);
        CHECK(close_range(3, ~0U, 0) == 0);
        CHECK(is_filled(data, LEN, 8));
        evict(data, LEN);
        closefrom(3);
        CHECK(is_filled(data, LEN, 8));
        evict(data, LEN);
        /* Nor do they look open. */
        struct stat status;
        for (int fd = 3; fd < 4096; fd++)
            CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF && fstat(fd, &status) == -1);
        for (int fd = 3; fd < 1100; fd++)
            dup2(0, fd);
        CHECK(is_filled(data, LEN, 8));
        _exit(0);
    }
    CHECK(status_of(child) == 0);
}

static int in_clone(void *arg) {
    CHECK(is_filled(data, LEN, 1));
    return *(int *)arg;
}

/* clone(2) with a stack of its own, and as glibc's fork calls it. */
static void clones(void) {
    fill(data, LEN, 1);
    evict(data, LEN);
    char *stack = malloc(100000);
    int value = 21;
    pid_t child = clone(in_clone, stack + 100000, SIGCHLD, &value);
    CHECK(WEXITSTATUS(status_of(child)) == 21);
    free(stack);
    evict(data, LEN);
    child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        CHECK(is_filled(data, LEN, 1));
        _exit(2);
    }
    CHECK(WEXITSTATUS(status_of(child)) == 2);
}

static int rests(void *arg) {
    (void)arg;
    for (;;)
        pause();
}

/* Memory of a process that shares this one's, and its own: more than may be held at once. */
static void memory_of_others(void) {
    enum { BIG = 20 << 20 };
    unsigned char *from = fresh(BIG), *to = fresh(BIG);
    /* Not from the heap: the child has no signal stack, without which no stack comes back. */
    static char stack[100000] __attribute__((aligned(16)));
    pid_t child = clone(rests, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK(child > 0);
    struct iovec here = {to, BIG}, there = {from, BIG};
    fill(to, PAGE, 1);
    CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) == BIG);
    CHECK(to[0] == 0 && to[PAGE - 1] == 0 && to[BIG - 1] == 0);
    fill(from, BIG, 2);
    evict(from, BIG);
    CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) == BIG);
    CHECK(is_filled(to, BIG, 2));
    fill(to, BIG, 3);
    evict(to, BIG);
    CHECK(process_vm_writev(child, &here, 1, &there, 1, 0) == BIG);
    CHECK(is_filled(from, BIG, 3));
    CHECK(kill(child, SIGKILL) == 0 && WTERMSIG(status_of(child)) == SIGKILL);
    /* Elements that do not begin where the others do, and empty ones. */
    fill(from, BIG, 4);
    struct iovec mine[] = {{to, 5000000}, {NULL, 0}, {to + 5000000, BIG - 5000000}};
    struct iovec other[] = {{from, 0}, {from, 9000000}, {from + 9000000, BIG - 9000000}};
    CHECK(process_vm_readv(getpid(), mine, 3, other, 3, 0) == BIG);
    CHECK(is_filled(to, BIG, 4));
    CHECK(process_vm_readv(getpid(), mine, 3, other, 2, 0) == 9000000);
    /* As far as there is memory. */
    CHECK(munmap(from + BIG / 2, BIG / 2) == 0);
    CHECK(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == BIG / 2);
    there.iov_base = from + BIG / 2;
    CHECK(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == -1 && errno == EFAULT);
    CHECK(munmap(from, BIG / 2) == 0 && munmap(to, BIG) == 0);
}

int main(void) {
    data = fresh(LEN);
    TELL(forks());
    TELL(forks_of_many_threads());
    TELL(vforks());
    TELL(clones());
    TELL(memory_of_others());
    TELL(execs());
    TELL(shells());
    TELL(signals_of_children());
    TELL(closing());
    return 0;
}
