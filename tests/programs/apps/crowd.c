// crowd CHILDREN MIB SEED
//
// What: fills MIB of mmap'ed memory with random words and says "ready". After a SIGUSR1 it makes
// CHILDREN processes, all there at once. Each checks 32 pages of the memory, overwrites a page
// and checks that, and makes a child that checks the same. When all are there, it says "here";
// after another SIGUSR1 all check once more and end.
//
// Exit status: 0 all was right, 1 a word was wrong, or a process could not be made.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512, LOOKED_AT = 32 };
static uint64_t *memory, seed;
static size_t pages;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void fill(size_t page, uint64_t with) {
    for (size_t i = 0; i < WORDS; i++)
        memory[page * WORDS + i] = mix(with << 40 ^ page << 9 ^ i);
}

static void check(size_t page, uint64_t with) {
    for (size_t i = 0; i < WORDS; i++)
        if (memory[page * WORDS + i] != mix(with << 40 ^ page << 9 ^ i)) {
            printf("WRONG: page %zu word %zu\n", page, i);
            fflush(stdout);
            _exit(1);
        }
}

// All that child `number` looks at: its own page, and others.
static void check_all(uint64_t number, uint64_t own) {
    size_t first = number * 31 % pages;
    check(first, own);
    for (size_t i = 1; i < LOOKED_AT; i++)
        check((first + i) % pages, seed);
}

static void must(int is_so, const char *what) {
    if (!is_so) {
        perror(what);
        _exit(1);
    }
}

static void child(uint64_t number, int here, int go) {
    check_all(number, seed);
    fill(number * 31 % pages, seed + number + 1);
    pid_t pid = fork();
    must(pid >= 0, "fork in a child");
    check_all(number, seed + number + 1);
    if (pid == 0)
        _exit(0);
    int status;
    must(waitpid(pid, &status, 0) == pid && status == 0, "a grandchild");
    char byte = 0;
    must(write(here, &byte, 1) == 1, "write");
    must(read(go, &byte, 1) == 0, "read");
    check_all(number, seed + number + 1);
    _exit(0);
}

static void await_signal(const sigset_t *set) {
    int got;
    sigwait(set, &got);
}

int main(int argc, char **argv) {
    (void)argc;
    uint64_t nr = strtoull(argv[1], NULL, 10);
    pages = strtoull(argv[2], NULL, 10) << 8;
    seed = strtoull(argv[3], NULL, 10);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < pages; page++)
        fill(page, seed);
    puts("ready");
    fflush(stdout);
    await_signal(&set);
    int here[2], go[2];
    must(pipe(here) == 0 && pipe(go) == 0, "pipe");
    for (uint64_t number = 0; number < nr; number++) {
        pid_t pid = fork();
        must(pid >= 0, "fork");
        if (pid == 0) {
            close(go[1]);
            child(number, here[1], go[0]);
        }
    }
    close(here[1]);
    char byte;
    for (uint64_t number = 0; number < nr; number++)
        must(read(here[0], &byte, 1) == 1, "a child is missing");
    puts("here");
    fflush(stdout);
    await_signal(&set);
    close(go[1]);
    uint64_t right = 0;
    for (int status; wait(&status) > 0;)
        right += status == 0;
    printf("right %llu\n", (unsigned long long)right);
    return right != nr;
}
