// confined [uid=N] [memlock=BYTES] [docker] -- COMMAND [ARG]...
//
// What: executes COMMAND as another user, with a limit of locked memory, or under a filter that
// denies what Docker's default profile denies to a container without added capabilities, as far as
// uzswap or a C library may ask for it: EPERM, and ENOSYS for clone3.
//
// Exit status: the command's; 2 usage or a call that failed.
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int denied[] = {
    SYS_userfaultfd, SYS_process_madvise, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2,
    SYS_kcmp, SYS_pidfd_getfd, SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_add_key,
    SYS_request_key, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_quotactl, SYS_acct,
};
enum { NR_DENIED = sizeof denied / sizeof *denied };

static void must(int is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "confined: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

static void filter(void) {
    struct sock_filter code[NR_DENIED + 5];
    int at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, NR_DENIED + 2, 0);
    for (int i = 0; i < NR_DENIED; i++)
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], NR_DENIED - i, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    struct sock_fprog program = {.len = at, .filter = code};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

int main(int argc, char **argv) {
    int at = 1;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        unsigned long number;
        if (sscanf(argv[at], "memlock=%lu", &number) == 1) {
            struct rlimit limit = {number, number};
            must(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "memlock");
        } else if (sscanf(argv[at], "uid=%lu", &number) == 1) {
            must(setgroups(0, NULL) == 0 && setgid(number) == 0 && setuid(number) == 0, "uid");
        } else if (strcmp(argv[at], "docker") == 0) {
            filter();
        } else {
            fprintf(stderr, "confined: what is %s?\n", argv[at]);
            return 2;
        }
    }
    if (at + 1 >= argc) {
        fprintf(stderr, "usage: confined [uid=N] [memlock=BYTES] [docker] -- COMMAND [ARG]...\n");
        return 2;
    }
    execvp(argv[at + 1], argv + at + 1);
    must(0, argv[at + 1]);
}
