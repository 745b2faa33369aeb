// stepper WHO N WHAT REPORT -- COMMAND [ARG]...
//
// What: runs COMMAND, a `uzswap run ...`, under ptrace with all that it starts, and counts the
// system calls of one of them (WHO) that uzswap makes: supervisor, program (the command), child (of
// the command), reclaimer. At the Nth it does WHAT: `kill` kills the process there, before the call
// is made; `count` does nothing; the name of an error (ENOSPC, EIO, EINTR, EMFILE, ENOMEM, EAGAIN)
// has the call fail with it, and then only calls count that may. Writes to REPORT how many calls it
// counted, and which one it hit.
//
// Of the supervisor all calls are uzswap's. In programs those are which come from the library, the
// image or memory without a file (the gate).
//
// Exit status: the command's, or 128 and the signal that ended it; 2 usage.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum role { SUPERVISOR, PROGRAM, CHILD, RECLAIMER, NR_ROLES };
static const char *const roles[] = {"supervisor", "program", "child", "reclaimer"};

enum { MAX_TRACEES = 512, NR_RANGES = 4, MAX_NAMED = 64 };
struct tracee {
    pid_t tid, tgid;
    enum role role;
    int fails;      // the call that it is in is to fail
    unsigned named; // times that its name was read
    // Text that is known to be uzswap's, or not.
    struct range { unsigned long start, end; int ours; } ranges[NR_RANGES];
    unsigned next;
};
static struct tracee tracees[MAX_TRACEES];
static int nr_tracees;

struct error { const char *name; int number; int calls[24]; };
static const struct error errors[] = {
    {"ENOMEM", ENOMEM, {SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_madvise, SYS_clone, SYS_fork,
        SYS_vfork, SYS_clone3, SYS_mlock, SYS_mlock2, SYS_ioctl, SYS_process_madvise, SYS_userfaultfd,
        SYS_memfd_create, SYS_openat, SYS_seccomp, SYS_execve, SYS_brk, -1}},
    {"EMFILE", EMFILE, {SYS_openat, SYS_open, SYS_dup, SYS_dup3, SYS_pipe2, SYS_memfd_create, SYS_userfaultfd,
        SYS_socket, SYS_pidfd_open, SYS_fcntl, SYS_eventfd2, SYS_timerfd_create, SYS_epoll_create1, -1}},
    {"ENOSPC", ENOSPC, {SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_ftruncate, SYS_fallocate,
        SYS_openat, SYS_mkdir, SYS_fsync, -1}},
    {"EIO", EIO, {SYS_read, SYS_pread64, SYS_preadv, SYS_readv, SYS_write, SYS_pwrite64, SYS_pwritev, SYS_writev,
        SYS_fsync, SYS_ftruncate, SYS_fallocate, SYS_readlink, SYS_getdents64, SYS_openat, -1}},
    {"EINTR", EINTR, {SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_openat, SYS_futex, SYS_wait4, SYS_waitid,
        SYS_nanosleep, SYS_clock_nanosleep, SYS_poll, SYS_ppoll, SYS_epoll_wait, SYS_flock, SYS_fallocate, -1}},
    {"EAGAIN", EAGAIN, {SYS_clone, SYS_fork, SYS_vfork, SYS_ioctl, SYS_madvise, SYS_process_madvise, SYS_mlock, -1}},
};

static const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                            PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
static unsigned long counted[NR_ROLES], wanted;
static enum role victim;
static const struct error *error; // NULL: the process is killed
static int counts_only;
static char hit[256];
static int has_begun; // the command has been executed
static int is_done;   // nothing is left to do: processes are let go

static struct tracee *find(pid_t tid) {
    for (int i = 0; i < nr_tracees; i++)
        if (tracees[i].tid == tid)
            return &tracees[i];
    return NULL;
}

static long field(pid_t tid, const char *name) {
    char path[64], line[256];
    long value = 0;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            value = atol(line + strlen(name));
    if (file)
        fclose(file);
    return value;
}

static struct tracee *add(pid_t tid) {
    if (nr_tracees == MAX_TRACEES) {
        fprintf(stderr, "stepper: too many processes\n");
        exit(2);
    }
    struct tracee *t = &tracees[nr_tracees];
    *t = (struct tracee){.tid = tid, .tgid = field(tid, "Tgid:")};
    struct tracee *leader = t->tgid == tid ? NULL : find(t->tgid), *parent = find(field(tid, "PPid:"));
    if (nr_tracees == 0)
        t->role = SUPERVISOR;
    else if (leader)
        t->role = leader->role;
    else
        t->role = parent && parent->role == SUPERVISOR ? PROGRAM : CHILD;
    nr_tracees++;
    return t;
}

static void forget(struct tracee *t) { *t = tracees[--nr_tracees]; }

// The reclaimer has a name of its own; before it has that it counts as a child.
static enum role role_of(struct tracee *t) {
    if ((t->role == CHILD || t->role == PROGRAM) && t->named++ < MAX_NAMED) {
        char path[64], name[32] = "";
        snprintf(path, sizeof path, "/proc/%d/comm", t->tid);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && strncmp(name, "uzswap-reclaim", 14) == 0)
            t->role = RECLAIMER;
        if (file)
            fclose(file);
    }
    return t->role;
}

static int is_ours(struct tracee *t, unsigned long ip) {
    if (t->role == SUPERVISOR)
        return 1;
    for (int i = 0; i < NR_RANGES; i++)
        if (ip >= t->ranges[i].start && ip < t->ranges[i].end)
            return t->ranges[i].ours;
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", t->tid);
    FILE *file = fopen(path, "r");
    int ours = 0;
    while (file && fgets(line, sizeof line, file)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) != 2 || ip < start || ip >= end)
            continue;
        ours = strstr(line, "uzswap") != NULL || strchr(line, '/') == NULL;
        t->ranges[t->next++ % NR_RANGES] = (struct range){start, end, ours};
        break;
    }
    if (file)
        fclose(file);
    return ours;
}

static int may_fail(long call) {
    for (const int *c = error->calls; *c >= 0; c++)
        if (*c == call)
            return 1;
    return 0;
}

static void at_call(struct tracee *t) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof info, &info) <= 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && t->fails) {
        t->fails = 0;
        struct user_regs_struct regs;
        ptrace(PTRACE_GETREGS, t->tid, 0, &regs);
        regs.rax = -(long)error->number;
        ptrace(PTRACE_SETREGS, t->tid, 0, &regs);
        is_done = 1;
    }
    if (!has_begun || info.op != PTRACE_SYSCALL_INFO_ENTRY || !is_ours(t, info.instruction_pointer))
        return;
    if (error && !may_fail(info.entry.nr))
        return;
    enum role role = role_of(t);
    if (++counted[role] != wanted || role != victim || counts_only)
        return;
    snprintf(hit, sizeof hit, "call %lu of the %s: number %llu at %llx", wanted, roles[role],
             (unsigned long long)info.entry.nr, (unsigned long long)info.instruction_pointer);
    if (!error) {
        kill(t->tgid, SIGKILL);
        is_done = 1;
        return;
    }
    t->fails = 1;
    struct user_regs_struct regs;
    ptrace(PTRACE_GETREGS, t->tid, 0, &regs);
    regs.orig_rax = -1;
    ptrace(PTRACE_SETREGS, t->tid, 0, &regs);
}

// The reclaimer is not traced with who starts it: it is attached to when it is seen.
static void look_for_reclaimer(void) {
    static unsigned stops;
    if (victim != RECLAIMER || is_done || stops++ % 64)
        return;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[300], name[32] = "";
        pid_t tid = atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        FILE *file = tid && !find(tid) ? fopen(path, "r") : NULL;
        if (file && fgets(name, sizeof name, file) && strncmp(name, "uzswap-reclaim", 14) == 0 &&
            ptrace(PTRACE_SEIZE, tid, 0, options) == 0) {
            ptrace(PTRACE_INTERRUPT, tid, 0, 0);
            add(tid)->role = RECLAIMER;
        }
        if (file)
            fclose(file);
    }
    if (proc)
        closedir(proc);
}

// After an exec the text is another.
static void at_exec(struct tracee *t) {
    memset(t->ranges, 0, sizeof t->ranges);
    has_begun = 1;
}

static int trace(pid_t first) {
    int result = 2;
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0)
            return result;
        look_for_reclaimer();
        struct tracee *t = find(tid);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid == first) {
                result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                if (is_done)
                    return result;
            }
            if (t)
                forget(t);
            continue;
        }
        if (!t)
            t = add(tid);
        int signal = WSTOPSIG(status), event = status >> 16;
        if (signal == (SIGTRAP | 0x80)) {
            at_call(t);
            signal = 0;
        } else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
            ptrace(PTRACE_LISTEN, tid, 0, 0);
            continue;
        } else if (event) {
            if (event == PTRACE_EVENT_EXEC)
                at_exec(t);
            signal = 0;
        }
        ptrace(is_done ? PTRACE_DETACH : PTRACE_SYSCALL, tid, 0, signal);
    }
}

static void usage(void) {
    fprintf(stderr, "usage: stepper WHO N WHAT REPORT -- COMMAND [ARG]...\n");
    exit(2);
}

int main(int argc, char **argv) {
    if (argc < 7 || strcmp(argv[5], "--") != 0)
        usage();
    for (victim = 0; strcmp(roles[victim], argv[1]) != 0;)
        if (++victim == NR_ROLES)
            usage();
    wanted = strtoul(argv[2], NULL, 10);
    counts_only = strcmp(argv[3], "count") == 0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, argv[3]) == 0)
            error = &errors[i];
    if (!error && !counts_only && strcmp(argv[3], "kill") != 0)
        usage();
    pid_t first = fork();
    if (first == 0) {
        raise(SIGSTOP);
        execvp(argv[6], argv + 6);
        _exit(127);
    }
    int status;
    waitpid(first, &status, WUNTRACED);
    if (ptrace(PTRACE_SEIZE, first, 0, options) != 0) {
        perror("stepper: ptrace");
        return 2;
    }
    add(first);
    kill(first, SIGCONT);
    int result = trace(first);
    FILE *report = fopen(argv[4], "w");
    if (report) {
        for (int i = 0; i < NR_ROLES; i++)
            fprintf(report, "%s %lu\n", roles[i], counted[i]);
        fprintf(report, "hit %s\n", hit);
        fclose(report);
    }
    return result;
}
