// fork MIB SEED
//
// What: a parent with threads that keep changing memory forks children, which check everything,
// change it, fork again, and run other programs in every way there is (exec, vfork, posix_spawn,
// system, popen). Parent and children must each keep their own right data.
//
// Exit status: 0 all was right, else not (stderr says what).
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static uint64_t nr_pages, seed;
static uint64_t *memory;
extern char **environ;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void fill(uint64_t page, uint64_t owner) {
    uint64_t *p = memory + page * WORDS;
    for (unsigned i = 0; i < WORDS; i++)
        p[i] = i < 12 ? mix(page ^ owner << 40 ^ seed ^ i) : page << 8 | owner;
}

static void check(uint64_t page, uint64_t owner, const char *who) {
    uint64_t *p = memory + page * WORDS;
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t want = i < 12 ? mix(page ^ owner << 40 ^ seed ^ i) : page << 8 | owner;
        if (p[i] != want) {
            fprintf(stderr, "WRONG in %s (pid %d): page %lu word %u: want %016lx of owner %lu, got %016lx\n",
                    who, getpid(), page, i, want, owner, p[i]);
            _exit(3);
        }
    }
}

// The last quarter belongs to threads of the first process, which write it all the time.
static atomic_int stop;
static atomic_ulong writes;

static void *scribble(void *arg) {
    uint64_t rng = mix((uintptr_t)arg);
    while (!stop) {
        rng = mix(rng);
        uint64_t page = nr_pages * 3 / 4 + rng % (nr_pages / 4);
        atomic_fetch_add((_Atomic uint64_t *)(memory + page * WORDS + 100 + (uintptr_t)arg), 1);
        char *s = malloc(rng % 5000 + 1);
        memset(s, 7, rng % 5000 + 1);
        free(s);
        writes++;
    }
    return NULL;
}

static void expect(int status, const char *what) {
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "WRONG: %s ended with status %#x\n", what, status);
        exit(4);
    }
}

static void wait_for(pid_t pid, const char *what) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror(what);
        exit(4);
    }
    expect(status, what);
}

static void child(uint64_t me, int depth) {
    uint64_t quiet = nr_pages * 3 / 4;
    for (uint64_t page = 0; page < quiet; page++)
        check(page, 1, "child before");
    for (uint64_t page = 0; page < quiet; page += 2)
        fill(page, me);
    if (depth > 0) {
        pid_t pid = fork();
        if (pid == 0) {
            for (uint64_t page = 0; page < quiet; page++)
                check(page, page % 2 ? 1 : me, "grandchild");
            for (uint64_t page = 0; page < quiet; page += 3)
                fill(page, me + 100);
            for (uint64_t page = 0; page < quiet; page++)
                check(page, page % 3 == 0 ? me + 100 : page % 2 ? 1 : me, "grandchild after");
            _exit(0);
        }
        wait_for(pid, "grandchild");
    }
    for (uint64_t page = 0; page < quiet; page++)
        check(page, page % 2 ? 1 : me, "child after");
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    nr_pages = strtoull(argv[1], NULL, 10) * 256;
    seed = strtoull(argv[2], NULL, 10);
    memory = mmap(NULL, nr_pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (uint64_t page = 0; page < nr_pages; page++)
        fill(page, 1);
    if (argc > 3) { // the program that the others run
        for (uint64_t page = 0; page < nr_pages; page++)
            check(page, 1, argv[3]);
        return 0;
    }
    pthread_t threads[3];
    for (uintptr_t t = 0; t < 3; t++)
        pthread_create(&threads[t], NULL, scribble, (void *)t);
    uint64_t quiet = nr_pages * 3 / 4;
    for (uint64_t round = 0; round < 3; round++) {
        pid_t pids[3];
        for (uint64_t i = 0; i < 3; i++) {
            fflush(NULL);
            pids[i] = fork();
            if (pids[i] == 0)
                child(2 + i + round * 3, i == 0);
        }
        // Meanwhile the parent writes what it already holds, which unshares it from the children.
        for (uint64_t page = round; page < quiet; page += 5)
            fill(page, 1);
        for (int i = 0; i < 3; i++)
            wait_for(pids[i], "child");
        for (uint64_t page = 0; page < quiet; page++)
            check(page, 1, "parent");
    }
    // Children that are ended at once, and a child of a thread's doing.
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        wait_for(pid, "short child");
    }
    char command[512];
    // The program itself, by its real path: system and popen look it up again.
    char self[256] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 2;
    snprintf(command, sizeof command, "'%s' 16 %s system", self, argv[2]);
    expect(system(command), "system");
    snprintf(command, sizeof command, "'%s' 16 %s popen && echo fine", self, argv[2]);
    FILE *pipe = popen(command, "r");
    char line[64] = "";
    if (!pipe || !fgets(line, sizeof line, pipe) || strcmp(line, "fine\n")) {
        fprintf(stderr, "WRONG: popen said %s\n", line);
        return 4;
    }
    expect(pclose(pipe), "popen");
    // Arguments and environment that live in managed, long evicted memory.
    char **args = calloc(5, sizeof *args);
    args[0] = strdup(self), args[1] = strdup("16"), args[2] = strdup(argv[2]);
    args[3] = strdup("posix_spawn");
    for (uint64_t page = 0; page < quiet; page++)
        check(page, 1, "parent before spawn");
    pid_t pid;
    if (posix_spawn(&pid, args[0], NULL, NULL, args, environ))
        return 4;
    wait_for(pid, "posix_spawn");
    strcpy(args[3], "vfork");
    pid = vfork();
    if (pid == 0) {
        execve(args[0], args, environ);
        _exit(9);
    }
    wait_for(pid, "vfork");
    strcpy(args[3], "exec");
    pid = fork();
    if (pid == 0) {
        execvp(args[0], args);
        _exit(9);
    }
    wait_for(pid, "exec");
    stop = 1;
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
    for (uint64_t page = 0; page < quiet; page++)
        check(page, 1, "parent at the end");
    printf("fork: %lu MiB, seed %lu: right\n", nr_pages / 256, seed);
    return 0;
}
