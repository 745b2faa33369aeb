// sparse NR
//
// What: touches one page in each of NR areas of 2 MiB, so that page tables take as much as the
// memory.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    size_t nr = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    volatile uint64_t *memory = mmap(NULL, nr << 21, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < nr; i++)
        memory[i << 18] = i;
    for (size_t i = 0; i < nr; i++)
        if (memory[i << 18] != i)
            return 1;
    puts("right");
    return 0;
}
