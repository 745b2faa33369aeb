// near MIB SEED WHAT
//
// What: fills MIB of mmap'ed memory with random bytes, then checks pages of it, by WHAT,
//   near  all, 64 KiB after 64 KiB, the pages of each in any order;
//   far   a quarter of them, each anywhere.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WORDS = 512, GROUP = 16 };
static uint64_t *memory;
static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state >> 8;
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void check(size_t page) {
    for (size_t i = 0; i < WORDS; i++)
        if (memory[page * WORDS + i] != mix(page << 9 ^ i)) {
            printf("WRONG: page %zu word %zu\n", page, i);
            exit(1);
        }
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t pages = strtoull(argv[1], NULL, 10) << 8;
    state = strtoull(argv[2], NULL, 10) | 1;
    // Aligned as folios are.
    char *mapped = mmap(NULL, (pages + GROUP) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return 2;
    memory = (uint64_t *)(mapped + (-(uintptr_t)mapped & (GROUP * 4096 - 1)));
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < WORDS; i++)
            memory[page * WORDS + i] = mix(page << 9 ^ i);
    if (!strcmp(argv[3], "far"))
        for (size_t n = 0; n < pages / 4; n++)
            check(next() % pages);
    else
        for (size_t group = 0; group < pages; group += GROUP) {
            size_t order[GROUP];
            for (size_t n = 0; n < GROUP; n++) {
                size_t other = next() % (n + 1);
                order[n] = order[other];
                order[other] = group + n;
            }
            for (size_t n = 0; n < GROUP; n++)
                check(order[n]);
        }
    puts("right");
    return 0;
}
