// hot MIB ROUNDS COLD SEED
//
// What: fills MIB of mmap'ed memory with random bytes. The first tenth is hot, the rest cold: each
// round uses all hot pages, then COLD random cold ones. After each half round it says "hot N" or
// "cold N" and waits for SIGUSR1, so that the test can read the counters.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { WORDS = 512 };

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint64_t *memory, seed;

static void use_page(uint64_t page) {
    for (int i = 0; i < WORDS; i++)
        if (memory[page * WORDS + i] != mix(seed << 40 ^ page << 9 ^ i)) {
            printf("WRONG: page %llu word %d\n", (unsigned long long)page, i);
            exit(1);
        }
}

static void pause_after(const char *what, int round, const sigset_t *wake) {
    int got;
    printf("%s %d\n", what, round);
    fflush(stdout);
    sigwait(wake, &got);
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    uint64_t pages = strtoull(argv[1], NULL, 10) << 8, hot = pages / 10;
    int rounds = atoi(argv[2]), cold = atoi(argv[3]);
    seed = strtoull(argv[4], NULL, 10);
    memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wake, NULL);
    for (uint64_t i = 0; i < pages * WORDS; i++)
        memory[i] = mix(seed << 40 ^ i);
    uint64_t rng = seed;
    for (int round = 0; round < rounds; round++) {
        for (uint64_t page = 0; page < hot; page++)
            use_page(page);
        pause_after("hot", round, &wake);
        for (int n = 0; n < cold; n++)
            use_page(hot + (rng = mix(rng)) % (pages - hot));
        pause_after("cold", round, &wake);
    }
    puts("right");
    return 0;
}
