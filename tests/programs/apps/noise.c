// noise MIB SEED
//
// What: fills MIB of malloc'ed memory with random bytes, which do not compress, and reads them
// twice.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t next(uint64_t *x) {
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

int main(int argc, char **argv) {
    size_t words = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) << 17;
    uint64_t seed = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) | 1;
    uint64_t *memory = malloc(words * 8);
    if (!memory)
        return 2;
    uint64_t x = seed;
    for (size_t i = 0; i < words; i++)
        memory[i] = next(&x);
    for (int pass = 0; pass < 2; pass++) {
        x = seed;
        for (size_t i = 0; i < words; i++)
            if (memory[i] != next(&x)) {
                puts("WRONG");
                return 1;
            }
    }
    puts("right");
    return 0;
}
