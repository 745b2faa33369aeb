// kinds MIB
//
// What: keeps MIB of records, which it checks over and over, and writes anew every other time. Records of a kind have most of their bytes in common; with each SIGUSR1
// the program goes over to other kinds, after a child has checked a copy of all, and says so: "kind 0", of which no two have anything in
// common, "kind 1", "kind 2", and with the third it ends, and says "right".
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512, RECORD = 16, COMMON = 7, KINDS = 24 };

static volatile sig_atomic_t told;
static uint64_t nr_pages;
static uint64_t *memory;
// What each page was written with.
static struct stamp {
    uint32_t family, number;
} *stamps;

static void next(int signal) {
    (void)signal;
    told++;
}

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9;
    return (x ^ x >> 29) * 0x94d049bb133111eb;
}

static void make(uint64_t *page, uint64_t n, struct stamp stamp) {
    for (uint64_t at = 0; at < WORDS; at += RECORD) {
        uint64_t own = mixed(n << 40 | (uint64_t)stamp.number << 10 | at);
        uint64_t kind = stamp.family * KINDS + own % KINDS;
        for (uint64_t i = 0; i < RECORD; i++)
            page[at + i] = i < COMMON ? stamp.family ? mixed(kind << 8 | i) : 0 : mixed(own + i);
    }
}

static int is_right(uint64_t n) {
    static uint64_t expected[WORDS];
    make(expected, n, stamps[n]);
    return memcmp(expected, memory + n * WORDS, sizeof expected) == 0;
}

static int all_right(void) {
    for (uint64_t n = 0; n < nr_pages; n++)
        if (!is_right(n))
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    nr_pages = (argc > 1 ? strtoull(argv[1], NULL, 10) : 40) * 256;
    memory = mmap(NULL, nr_pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stamps = calloc(nr_pages, sizeof *stamps);
    if (memory == MAP_FAILED || !stamps)
        return 2;
    signal(SIGUSR1, next);
    uint32_t number = 0;
    for (uint32_t family = 0; family < 3; family++) {
        printf("kind %u\n", family);
        fflush(stdout);
        for (int round = 0; round == 0 || told <= (int)family; round++) {
            number++;
            for (uint64_t n = 0; n < nr_pages; n++) {
                if (number > 1 && !is_right(n)) {
                    puts("WRONG");
                    return 1;
                }
                if (round % 2 == 1)
                    continue;
                stamps[n] = (struct stamp){family, number};
                make(memory + n * WORDS, n, stamps[n]);
            }
        }
        pid_t child = fork();
        if (child == 0)
            _exit(!all_right());
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            puts("a child finds it WRONG");
            return 1;
        }
    }
    puts(all_right() ? "right" : "WRONG");
    return 0;
}
