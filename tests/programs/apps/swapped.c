// swapped WHAT MIB SEED
//
// What: fills MIB of mmap'ed memory with random bytes, then, by WHAT,
//   hold    says "ready", waits for SIGUSR1, and checks them; a lost page ends it by SIGBUS;
//   kill    makes children, one after the other, that each overwrite all of it, check it and die by
//           SIGKILL; then checks its own;
//   orphan  makes children that each make one, change their data, and end first, by _exit or
//           SIGKILL; the grandchild then checks its own;
//   family  forks a child; both overwrite every second page with their own data and check all; the
//           child exits or dies first; the parent checks once more.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };
static uint64_t *memory;
static size_t pages;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void fill(uint64_t seed, size_t step) {
    for (size_t page = 0; page < pages; page += step)
        for (size_t i = 0; i < WORDS; i++)
            memory[page * WORDS + i] = mix(seed << 40 ^ page << 9 ^ i);
}

static void check(uint64_t even, uint64_t odd, const char *who) {
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < WORDS; i++)
            if (memory[page * WORDS + i] != mix((page % 2 ? odd : even) << 40 ^ page << 9 ^ i)) {
                printf("WRONG %s: page %zu word %zu\n", who, page, i);
                exit(1);
            }
}

static pid_t make_child(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    return pid;
}

static void expect(pid_t child, int by_signal) {
    int status;
    waitpid(child, &status, 0);
    if (by_signal ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) {
        printf("WRONG child: status %x\n", status);
        exit(1);
    }
}

// A child with a child, which outlives it. Both change every second page.
static void outlived(uint64_t seed, int round) {
    int ended[2], told[2];
    if (pipe(ended) || pipe(told))
        exit(1);
    uint64_t own = seed + 1 + 2 * round;
    pid_t child = make_child();
    if (!child) {
        close(told[0]);
        fill(own, 2);
        if (!make_child()) {
            close(ended[1]);
            fill(own + 1, 2);
            char byte = 'y';
            // After everyone who could write there has ended.
            if (read(ended[0], &byte, 1) != 0)
                exit(1);
            check(own + 1, seed, "grandchild");
            _exit(write(told[1], &byte, 1) != 1);
        }
        check(own, seed, "child");
        if (round % 2)
            kill(getpid(), SIGKILL);
        _exit(0);
    }
    close(ended[1]), close(told[1]);
    expect(child, round % 2);
    char byte;
    if (read(told[0], &byte, 1) != 1 || read(told[0], &byte, 1) != 0) {
        puts("WRONG: the grandchild did not say that all was right");
        exit(1);
    }
    close(ended[0]), close(told[0]);
    check(seed, seed, "parent of orphans");
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    pages = strtoull(argv[2], NULL, 10) << 8;
    uint64_t seed = strtoull(argv[3], NULL, 10);
    memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wake, NULL);
    fill(seed, 1);
    if (!strcmp(argv[1], "hold")) {
        puts("ready");
        fflush(stdout);
        int got;
        sigwait(&wake, &got);
    } else if (!strcmp(argv[1], "orphan")) {
        for (int round = 0; round < 4; round++)
            outlived(seed, round);
    } else {
        for (int round = 0; round < 4; round++) {
            int dies = argv[1][0] == 'k' || round % 2;
            pid_t child = make_child();
            uint64_t own = seed + 1 + 2 * round + (child != 0);
            if (!child) {
                if (argv[1][0] == 'k') {
                    fill(own, 1);
                    check(own, own, "child");
                } else {
                    fill(own, 2);
                    check(own, seed, "child");
                }
                if (dies)
                    kill(getpid(), SIGKILL);
                _exit(0);
            }
            if (argv[1][0] == 'f') {
                fill(own, 2);
                check(own, seed, "parent beside its child");
                expect(child, dies);
                check(own, seed, "parent after its child");
                fill(seed, 2);
            } else {
                expect(child, dies);
            }
        }
    }
    check(seed, seed, "the end");
    puts("right");
    return 0;
}
