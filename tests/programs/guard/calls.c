/* Calls other than reads and writes, with their arguments evicted. */
#include "story.h"
#include <dirent.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <aio.h>

static char *page;

static char *out(const char *text) {
    strcpy(page, text);
    evict(page, PAGE);
    return page;
}

static void paths(void) {
    struct stat *st = fresh(PAGE), want;
    char dir[] = "/tmp/storyXXXXXX";
    CHECK(mkdtemp(dir));
    char file[64];
    sprintf(file, "%s/file", dir);
    int fd = open(out(file), O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, "abc", 3) == 3);
    CHECK(stat(file, &want) == 0);
    evict(st, PAGE);
    CHECK(stat(out(file), st) == 0 && st->st_ino == want.st_ino && st->st_size == 3);
    evict(st, PAGE);
    CHECK(fstat(fd, st) == 0 && st->st_ino == want.st_ino);
    struct statx *sx = (void *)st;
    evict(st, PAGE);
    CHECK(statx(AT_FDCWD, out(file), 0, STATX_ALL, sx) == 0 && sx->stx_ino == want.st_ino);
    CHECK(access(out(file), R_OK) == 0);
    CHECK(access(out("/nowhere"), R_OK) == -1 && errno == ENOENT);
    char link[64];
    sprintf(link, "%s/link", dir);
    char *other = fresh(PAGE);
    strcpy(other, link);
    evict(other, PAGE);
    CHECK(symlink(out(file), other) == 0);
    char *target = fresh(PAGE);
    evict(target, PAGE);
    evict(other, PAGE);
    ssize_t n = readlink(other, target, PAGE);
    CHECK(n == (ssize_t)strlen(file) && memcmp(target, file, (size_t)n) == 0);
    evict(other, PAGE);
    CHECK(unlink(other) == 0);
    char to[64];
    sprintf(to, "%s/renamed", dir);
    strcpy(other, to);
    evict(other, PAGE);
    CHECK(rename(out(file), other) == 0);
    CHECK(chmod(out(to), 0644) == 0);
    struct timespec *times = fresh(PAGE);
    times[0].tv_sec = 100;
    times[1].tv_sec = 200;
    evict(times, PAGE);
    CHECK(utimensat(AT_FDCWD, out(to), times, 0) == 0);
    CHECK(stat(to, &want) == 0 && want.st_mtime == 200 && (want.st_mode & 0777) == 0644);
    /* A name that crosses a page. */
    char *two = fresh(2 * PAGE);
    char *crossing = two + PAGE - 10;
    strcpy(crossing, to);
    evict(two, 2 * PAGE);
    CHECK(access(crossing, R_OK) == 0);
    char *cwd = fresh(PAGE);
    CHECK(chdir(out(dir)) == 0);
    evict(cwd, PAGE);
    CHECK(getcwd(cwd, PAGE) && strcmp(cwd, dir) == 0);
    /* Directory entries, by the raw call and by the library. */
    for (int i = 0; i < 200; i++) {
        char name[32];
        sprintf(name, "entry-%d", i);
        int e = open(name, O_CREAT | O_WRONLY, 0600);
        CHECK(e >= 0);
        close(e);
    }
    int d = open(".", O_RDONLY | O_DIRECTORY);
    unsigned char *ents = fresh(8 * PAGE);
    int nr = 0;
    for (;;) {
        evict(ents, 8 * PAGE);
        long len = syscall(SYS_getdents64, d, ents, 8 * PAGE);
        CHECK(len >= 0);
        if (len == 0)
            break;
        for (long at = 0; at < len; at += *(unsigned short *)(ents + at + 16))
            nr++;
    }
    CHECK(nr == 203);
    close(d);
    DIR *stream = opendir(".");
    struct dirent *e;
    nr = 0;
    while ((e = readdir(stream)))
        nr++;
    CHECK(nr == 203);
    closedir(stream);
    for (int i = 0; i < 200; i++) {
        char name[32];
        sprintf(name, "entry-%d", i);
        CHECK(unlink(out(name)) == 0);
    }
    CHECK(unlink(out(to)) == 0);
    CHECK(chdir("/") == 0);
    CHECK(rmdir(out(dir)) == 0);
    struct statfs *fs = fresh(PAGE);
    evict(fs, PAGE);
    CHECK(statfs(out("/"), fs) == 0 && fs->f_bsize > 0);
    close(fd);
}

static void waiting(void) {
    int p[2];
    CHECK(pipe(p) == 0);
    struct pollfd *fds = fresh(PAGE);
    fds[0] = (struct pollfd){.fd = p[0], .events = POLLIN};
    fds[1] = (struct pollfd){.fd = p[1], .events = POLLOUT};
    evict(fds, PAGE);
    CHECK(poll(fds, 2, 1000) == 1 && fds[0].revents == 0 && fds[1].revents == POLLOUT);
    struct timespec *ts = fresh(PAGE);
    sigset_t *set = fresh(PAGE);
    sigemptyset(set);
    ts->tv_nsec = 1000000;
    evict(fds, PAGE);
    evict(ts, PAGE);
    evict(set, PAGE);
    CHECK(ppoll(fds, 1, ts, set) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    fd_set *r = fresh(PAGE);
    FD_ZERO(r);
    FD_SET(p[0], r);
    struct timeval *tv = fresh(PAGE);
    tv->tv_sec = 1;
    evict(r, PAGE);
    evict(tv, PAGE);
    CHECK(select(p[0] + 1, r, NULL, NULL, tv) == 1 && FD_ISSET(p[0], r));
    ts->tv_sec = 1;
    evict(r, PAGE);
    evict(ts, PAGE);
    evict(set, PAGE);
    CHECK(pselect(p[0] + 1, r, NULL, NULL, ts, set) == 1 && FD_ISSET(p[0], r));
    int ep = epoll_create1(0);
    struct epoll_event *ev = fresh(PAGE);
    ev->events = EPOLLIN;
    ev->data.u64 = 0x123456789abcdef;
    evict(ev, PAGE);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], ev) == 0);
    memset(ev, 0, PAGE);
    evict(ev, PAGE);
    CHECK(epoll_wait(ep, ev, 100, 1000) == 1 && ev->data.u64 == 0x123456789abcdef);
    memset(ev, 0, PAGE);
    evict(ev, PAGE);
    evict(set, PAGE);
    CHECK(epoll_pwait(ep, ev, 100, 1000, set) == 1 && ev->data.u64 == 0x123456789abcdef);
    ts->tv_sec = 0;
    ts->tv_nsec = 2000000;
    evict(ts, PAGE);
    CHECK(nanosleep(ts, ts) == 0);
    evict(ts, PAGE);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, ts, NULL) == 0);
    close(ep);
    close(p[0]);
    close(p[1]);
}

static void asking(void) {
    struct utsname *u = fresh(PAGE);
    evict(u, PAGE);
    CHECK(uname(u) == 0 && strcmp(u->sysname, "Linux") == 0);
    struct rusage *ru = fresh(PAGE);
    evict(ru, PAGE);
    CHECK(getrusage(RUSAGE_SELF, ru) == 0 && ru->ru_maxrss > 0);
    struct rlimit *rl = fresh(PAGE);
    evict(rl, PAGE);
    CHECK(getrlimit(RLIMIT_NOFILE, rl) == 0 && rl->rlim_cur > 0);
    evict(rl, PAGE);
    CHECK(setrlimit(RLIMIT_NOFILE, rl) == 0);
    unsigned char *random = fresh(64 * PAGE);
    evict(random, 64 * PAGE);
    CHECK(syscall(SYS_getrandom, random, 64 * PAGE, 0) == 64 * (long)PAGE);
    size_t zeros = 0;
    for (size_t i = 0; i < 64 * PAGE; i++)
        zeros += random[i] == 0;
    CHECK(zeros < 64 * PAGE / 100);
    cpu_set_t *cpus = fresh(PAGE);
    evict(cpus, PAGE);
    CHECK(sched_getaffinity(0, sizeof *cpus, cpus) == 0 && CPU_COUNT(cpus) > 0);
    evict(cpus, PAGE);
    CHECK(sched_setaffinity(0, sizeof *cpus, cpus) == 0);
    int p[2], *n = fresh(PAGE);
    CHECK(pipe(p) == 0 && write(p[1], "12345", 5) == 5);
    evict(n, PAGE);
    CHECK(ioctl(p[0], FIONREAD, n) == 0 && *n == 5);
    evict(n, PAGE);
    int *pair = n;
    CHECK(pipe(pair) == 0);
    struct itimerval *it = fresh(PAGE);
    memset(it, 0, sizeof *it);
    evict(it, PAGE);
    CHECK(setitimer(ITIMER_REAL, it, NULL) == 0);
    struct timespec *ts = fresh(PAGE);
    evict(ts, PAGE);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, ts) == 0 && ts->tv_sec > 0);
    unsigned char *vec = fresh(PAGE);
    evict(vec, PAGE);
    CHECK(mincore(page, PAGE, vec) == 0);
    CHECK(syscall(SYS_gettid) == gettid());
}

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    long count, next;
};

static struct shared *shared;

/* A fault may come that reads the counter. */
static void without_the_time_stamp_counter(void) {
    fill((unsigned char *)page, PAGE, 3);
    evict(page, PAGE);
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) CHECK(errno == EINVAL);
    int there = (unsigned char)page[99] == pattern(99, 3);
    CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
    CHECK(there);
}

static void *contend(void *arg) {
    long id = (long)arg;
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&shared->lock);
        while (shared->next % 4 != id)
            pthread_cond_wait(&shared->turn, &shared->lock);
        shared->count++;
        shared->next++;
        if (i % 7 == 0)
            evict(shared, sizeof *shared);
        pthread_cond_broadcast(&shared->turn);
        pthread_mutex_unlock(&shared->lock);
        if (i % 5 == 0)
            evict(shared, sizeof *shared);
    }
    return NULL;
}

static void locks(void) {
    shared = fresh(PAGE);
    pthread_mutex_init(&shared->lock, NULL);
    pthread_cond_init(&shared->turn, NULL);
    pthread_t t[4];
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, contend, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(shared->count == 1200);
    /* With priority inheritance the kernel writes the word itself. */
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    memset(shared, 0, sizeof *shared);
    pthread_mutex_init(&shared->lock, &attr);
    pthread_cond_init(&shared->turn, NULL);
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, contend, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(shared->count == 1200);
    /* A wait that times out. */
    struct timespec *ts = fresh(PAGE);
    uint32_t *word = fresh(PAGE);
    *word = 7;
    ts->tv_nsec = 1000000;
    evict(ts, PAGE);
    evict(word, PAGE);
    CHECK(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 7, ts) == -1 && errno == ETIMEDOUT);
    evict(word, PAGE);
    CHECK(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 8, NULL) == -1 && errno == EAGAIN);
}

static void asynchronous(void) {
    int fd = scratch_file();
    unsigned char *a = fresh(64 * PAGE);
    fill(a, 64 * PAGE, 3);
    struct aiocb cb = {.aio_fildes = fd, .aio_buf = a, .aio_nbytes = 64 * PAGE};
    cb.aio_sigevent.sigev_notify = SIGEV_NONE;
    evict(a, 64 * PAGE);
    CHECK(aio_write(&cb) == 0);
    const struct aiocb *list[1] = {&cb};
    while (aio_error(&cb) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    CHECK(aio_return(&cb) == 64 * (ssize_t)PAGE);
    memset(a, 0, 64 * PAGE);
    CHECK(aio_read(&cb) == 0);
    evict(a, 64 * PAGE);
    while (aio_error(&cb) == EINPROGRESS) {
        evict(a, 64 * PAGE);
        aio_suspend(list, 1, NULL);
    }
    CHECK(aio_return(&cb) == 64 * (ssize_t)PAGE);
    CHECK(is_filled(a, 64 * PAGE, 3));
    close(fd);
}

int main(void) {
    page = fresh(PAGE);
    TELL(paths());
    TELL(waiting());
    TELL(asking());
    TELL(without_the_time_stamp_counter());
    TELL(locks());
    TELL(asynchronous());
    return 0;
}
