// small_blocks MIB: fills MIB MiB by blocks that malloc takes from its heap, frees and refills a
// third, and says the sum of all words.
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 120 };

int main(int argc, char **argv) {
    size_t count = (argc > 1 ? atoi(argv[1]) : 64) * (1ul << 20) / (WORDS * 8 + 16);
    unsigned long **blocks = malloc(count * sizeof *blocks), sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(blocks[i] = malloc(WORDS * 8))) return 1;
        for (int k = 0; k < WORDS; k++) blocks[i][k] = (i * 2654435761u + k) & 0xffff;
    }
    for (size_t i = 0; i < count; i += 3) free(blocks[i]);
    for (size_t i = 0; i < count; i += 3) {
        if (!(blocks[i] = calloc(WORDS, 8))) return 1;
        blocks[i][i % WORDS] += i;
    }
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < WORDS; k++) sum = sum * 31 + blocks[i][k];
    printf("%zu blocks, sum %lx\n", count, sum);
    return 0;
}
