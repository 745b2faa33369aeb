/* Steps in which the kernel reads and writes the windows. Buffers end where they like: in what is
 * not mapped, or may not be accessed. */
#ifndef CALL_STEPS_H
#define CALL_STEPS_H
#include <poll.h>
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

/* A buffer: mostly near the end of a page, where what comes next differs. */
struct span {
    uint8_t *p;
    size_t len;
    struct range pages;
};
static struct span any_span(struct actor *a, size_t most) {
    struct range r = any_range(a);
    if (r.nr > 8) r.nr = 8;
    size_t off = chance(a, 3) ? 0 : chance(a, 2) ? below(a, PAGE) : PAGE - 1 - below(a, 64);
    size_t len = r.nr * PAGE - off;
    if (chance(a, 2)) len = 1 + below(a, len);
    if (len > most) len = most;
    r.nr = (off + len + PAGE - 1) / PAGE;
    return (struct span){at(r.first) + off, len, r};
}
static void say_span(struct actor *a, const char *what, struct span s) {
    say(a, "%s %d%+ld,%zu", what, s.pages.first, (long)(s.p - at(s.pages.first)), s.len);
}
/* The kernel wrote something that differs from run to run. */
static void blank(struct span s) {
    if (FAULTS(for (size_t i = 0; i < s.len; i++) ((volatile uint8_t *)s.p)[i] = 5)) return;
}

/* Reads all that has arrived, and says what. */
static void drain(struct actor *a, int fd) {
    size_t len = 0;
    ssize_t n;
    while (len < BUFFER && (n = read(fd, a->buffer + len, BUFFER - len)) > 0) len += n;
    say(a, " arrived %zu %08x", len, (unsigned)hash_of(a->buffer, len));
}
static void say_written(struct actor *a, long done, struct span s) {
    say_result(a, done);
    say_range(a, s.pages);
}

/* Parts of an iovec, some of which overlap, one perhaps empty. */
static int any_parts(struct actor *a, struct iovec *parts) {
    int n = 1 + below(a, 4);
    for (int i = 0; i < n; i++) {
        struct span s = any_span(a, 8192);
        parts[i] = (struct iovec){s.p, chance(a, 10) ? 0 : s.len};
        say_span(a, " ", s);
    }
    return n;
}
/* It holds addresses, which differ from run to run. */
static void remove_from(void *where, int n) {
    blank((struct span){where, n * sizeof(struct iovec), {0, 0}});
}
/* The iovec itself, in a window where one can be. */
static struct iovec *place(struct actor *a, struct iovec *parts, int n) {
    struct span s = any_span(a, PAGE);
    s.p = (uint8_t *)((uintptr_t)s.p & ~7UL);
    if (chance(a, 2)) return parts;
    /* Nor is it to be among what is sent. */
    for (int i = 0; i < n; i++) {
        uint8_t *from = parts[i].iov_base, *to = from + parts[i].iov_len;
        if (from < s.p + n * sizeof *parts && s.p < to) return parts;
    }
    if (FAULTS(memcpy(s.p, parts, n * sizeof *parts))) {
        remove_from(s.p, n);
        return parts;
    }
    madvise(at(s.pages.first), PAGE, MADV_PAGEOUT);
    say(a, " in %d", s.pages.first);
    return (struct iovec *)s.p;
}

static void step_pipe(struct actor *a) {
    struct span s = any_span(a, 32 << 10);
    if (chance(a, 2)) {
        say_span(a, "write", s);
        say_result(a, write(a->pipe[1], s.p, s.len));
    } else {
        pattern(a->buffer, s.len, a->random);
        MUST(write(a->pipe[1], a->buffer, s.len) == (ssize_t)s.len);
        say_span(a, "read", s);
        say_written(a, read(a->pipe[0], s.p, s.len), s);
    }
    drain(a, a->pipe[0]);
}

static void step_file(struct actor *a) {
    struct span s = any_span(a, 32 << 10);
    off_t off = below(a, FILE_PAGES * PAGE);
    /* To copy a file's page onto itself is the kernel's own affair. */
    for (int i = s.pages.first; i < s.pages.first + s.pages.nr; i++)
        if (pages[i].kind >= FILE_PRIVATE) return;
    if (chance(a, 2)) {
        say_span(a, "pwrite", s);
        say_result(a, pwrite(a->memfd, s.p, s.len, off));
        long got = pread(a->memfd, a->buffer, s.len, off);
        say(a, " file %08x", (unsigned)hash_of(a->buffer, got > 0 ? got : 0));
        MUST(ftruncate(a->memfd, FILE_PAGES * PAGE) == 0);
    } else {
        say_span(a, "pread", s);
        say_written(a, pread(a->memfd, s.p, s.len, off), s);
    }
}

static void step_vectors(struct actor *a) {
    struct iovec parts[4];
    int how = below(a, 4);
    say(a, "%s", (const char *[]){"writev", "readv", "vmsplice", "sendmsg"}[how]);
    int n = any_parts(a, parts);
    struct iovec *where = place(a, parts, n);
    if (how == 0) {
        say_result(a, writev(a->pipe[1], where, n));
    } else if (how == 1) {
        pattern(a->buffer, 20000, a->random);
        MUST(write(a->pipe[1], a->buffer, 20000) == 20000);
        say_result(a, readv(a->pipe[0], where, n));
    } else if (how == 2) {
        say_result(a, vmsplice(a->pipe[1], where, n, SPLICE_F_NONBLOCK));
    } else {
        struct msghdr msg = {.msg_iov = where, .msg_iovlen = n};
        say_result(a, sendmsg(a->dgram[0], &msg, MSG_DONTWAIT));
        drain(a, a->dgram[1]);
    }
    if (where != parts) remove_from(where, n);
    drain(a, a->pipe[0]);
}

static void step_socket(struct actor *a) {
    struct span s = any_span(a, 16 << 10);
    int *pair = chance(a, 2) ? a->stream : a->dgram;
    if (chance(a, 2)) {
        say_span(a, "send", s);
        say_result(a, send(pair[0], s.p, s.len, MSG_DONTWAIT));
    } else {
        pattern(a->buffer, s.len, a->random);
        MUST(send(pair[0], a->buffer, s.len, 0) == (ssize_t)s.len);
        say_span(a, pair == a->stream ? "recv" : "recv of a datagram", s);
        say_written(a, recv(pair[1], s.p, s.len, MSG_DONTWAIT), s);
    }
    drain(a, pair[1]);
}

static void step_vm(struct actor *a) {
    struct span s = any_span(a, 32 << 10);
    struct iovec theirs = {s.p, s.len}, mine = {a->buffer, s.len};
    struct span other = any_span(a, 32 << 10);
    int both = chance(a, 4);
    if (both) mine = (struct iovec){other.p, other.len};
    if (chance(a, 2)) {
        memset(a->buffer, 0, s.len);
        say_span(a, "process_vm_readv", s);
        if (both) say_span(a, " to", other);
        say_result(a, process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0));
        if (both) say_range(a, other.pages);
        else say(a, " %08x", (unsigned)hash_of(a->buffer, s.len));
    } else {
        pattern(a->buffer, s.len, a->random);
        say_span(a, "process_vm_writev", s);
        if (both) say_span(a, " from", other);
        say_written(a, process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0), s);
    }
}

static void step_futex(struct actor *a) {
    struct span s = any_span(a, 4);
    uint32_t *word = (uint32_t *)((uintptr_t)s.p & ~3UL);
    int private = chance(a, 2) ? FUTEX_PRIVATE_FLAG : 0, op = below(a, 4);
    struct timespec never = {0, 0};
    say_span(a, "futex", s);
    say(a, " op %d private %d", op, private);
    switch (op) {
        case 0: say_result(a, syscall(SYS_futex, word, FUTEX_WAIT | private, 0x13572468, &never)); break;
        case 1: say_result(a, syscall(SYS_futex, word, FUTEX_WAKE | private, 1)); break;
        case 2:
            say_result(a, syscall(SYS_futex, word, FUTEX_WAKE_OP | private, 1, 1, word,
                                  FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)));
            break;
        default:
            say_result(a, syscall(SYS_futex, word, FUTEX_CMP_REQUEUE | private, 1, 1, word + 1, 0x13572468));
    }
    say_range(a, (struct range){s.pages.first, 1});
}

/* What poll says of descriptors is left out where some may be open: uzswap's own, and those that
 * threads open and close. */
static long without_open_descriptors(struct span s, long done) {
    enum { OPEN = 1024 };
    int kept = errno;
    for (size_t i = 0; i < s.len / 8 && i < 64; i++) {
        volatile struct pollfd *p = (struct pollfd *)s.p + i;
        int is_shown = 0;
        if (FAULTS(is_shown = p->fd >= 0 && p->fd < OPEN && p->revents != 0; if (is_shown) p->revents = 0))
            continue;
        if (is_shown && done > 0) done--;
    }
    errno = kept;
    return done;
}

/* Calls that fill in a structure, or take a string. */
static void step_small(struct actor *a) {
    struct span s = any_span(a, 1024);
    int how = below(a, a->threaded ? 12 : 15), overwrite = 0;
    static const char *names[] = {
        "getrandom", "clock_gettime", "fstat", "sysinfo", "getrusage", "getcwd", "uname", "poll",
        "rt_sigprocmask", "sched_getaffinity", "open", "access", "pipe2", "prctl name", "getsockopt",
    };
    say_span(a, names[how], s);
    long done = -1;
    switch (how) {
        case 0: done = syscall(SYS_getrandom, s.p, s.len > 256 ? 256 : s.len, 0), overwrite = 256; break;
        case 1: done = syscall(SYS_clock_gettime, CLOCK_REALTIME, s.p), overwrite = 16; break;
        case 2: done = fstat(a->memfd, (struct stat *)s.p), overwrite = sizeof(struct stat); break;
        case 3: done = sysinfo((struct sysinfo *)s.p), overwrite = sizeof(struct sysinfo); break;
        case 4: done = getrusage(RUSAGE_SELF, (struct rusage *)s.p), overwrite = sizeof(struct rusage); break;
        case 5: done = syscall(SYS_getcwd, s.p, s.len) > 0 ? 1 : -1, overwrite = 256; break;
        case 6: done = uname((struct utsname *)s.p); break;
        case 7:
            /* A signal that is pending interrupts it even so. */
            do done = syscall(SYS_poll, s.p, s.len / 8 > 64 ? 64 : s.len / 8, 0);
            while (done == -1 && errno == EINTR);
            done = without_open_descriptors(s, done);
            break;
        case 8: done = syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, s.p, 8); break;
        case 9: done = syscall(SYS_sched_getaffinity, 0, s.len & ~7UL, s.p), overwrite = 128; break;
        case 10: done = open((char *)s.p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW); break;
        case 11: done = syscall(SYS_access, s.p, F_OK); break;
        case 12: done = syscall(SYS_pipe2, s.p, O_CLOEXEC), overwrite = 8; break;
        case 13: done = syscall(SYS_prctl, 16 /* PR_GET_NAME */, s.p); break;
        default: done = getsockopt(a->stream[0], SOL_SOCKET, SO_TYPE, s.p, (socklen_t *)((uintptr_t)(s.p + 8) & ~3UL));
    }
    if (how == 12 && done == 0) {
        int fds[2];
        memcpy(fds, s.p, sizeof fds);
        close(fds[0]), close(fds[1]);
    }
    if (how == 10 && done >= 0) close(done), done = 0;
    say_result(a, done);
    if (overwrite && (size_t)overwrite < s.len) s.len = overwrite;
    if (overwrite && overwrite > (int)s.len) s.len = overwrite;
    if (overwrite) blank(s);
    say_range(a, (struct range){s.pages.first, 1});
}
#endif
