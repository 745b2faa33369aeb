/*
 * Almost all mappings that a process may have are in use: memory is still evicted and comes back
 * right, and reads into it succeed.
 */
// uzswap: --ram 16M
#include "check.h"

#include <fcntl.h>

#define NR 8192
#define SPARE 150

static uint32_t stamps[NR];
static uint8_t *base;

static void write_page(int n, uint32_t stamp) {
    uint32_t *p = (uint32_t *)(base + (size_t)n * PAGE);
    for (size_t i = 0; i < PAGE / 4; i++) p[i] = stamp + (uint32_t)n * (i % 8 == 0);
    stamps[n] = stamp;
}

static void check_page(int n) {
    const uint32_t *p = (const uint32_t *)(base + (size_t)n * PAGE);
    for (size_t i = 0; i < PAGE / 4; i++) {
        CHECK(p[i] == (stamps[n] ? stamps[n] + (uint32_t)n * (i % 8 == 0) : 0));
    }
}

int main(void) {
    long most = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(f && fscanf(f, "%ld", &most) == 1);
    fclose(f);
    if (most > 1 << 18) {
        printf("%ld mappings are too many to use up\n", most);
        return 0;
    }
    base = mmap(NULL, (size_t)NR * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    for (int n = 0; n < NR; n++) write_page(n, 1);
    int zeroes = open("/dev/zero", O_RDONLY);
    CHECK(zeroes >= 0);

    /* Every second page of shared memory is another mapping. */
    uint8_t *wall = mmap(NULL, (size_t)most * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(wall != MAP_FAILED);
    long used = 0;
    while (mprotect(wall + (2 * used + 1) * PAGE, PAGE, PROT_READ) == 0) used++;
    CHECK(errno == ENOMEM && used > SPARE);
    for (long i = used - SPARE; i < used; i++) {
        CHECK(mprotect(wall + (2 * i + 1) * PAGE, PAGE, PROT_NONE) == 0);
    }

    unsigned x = 1;
    for (int round = 0; round < 6000; round++) {
        x = x * 1103515245 + 12345;
        int n = (x >> 8) % NR;
        check_page(n);
        switch (round % 8) {
        case 0:
            CHECK(madvise(base + (size_t)n * PAGE, PAGE, MADV_DONTNEED) == 0);
            stamps[n] = 0;
            check_page(n);
            break;
        case 1:
            CHECK(read(zeroes, base + (size_t)n * PAGE, PAGE) == PAGE);
            stamps[n] = 0;
            break;
        default:
            write_page(n, (uint32_t)round + 2);
        }
    }
    for (int n = 0; n < NR; n++) check_page(n);
    /* Part of it goes, and what is mapped next is fresh. */
    CHECK(munmap(base + 64 * PAGE, 64 * PAGE) == 0 || errno == ENOMEM);
    munmap(wall, (size_t)most * PAGE);
    uint8_t *fresh = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fresh != MAP_FAILED);
    for (size_t i = 0; i < 64 * PAGE; i++) CHECK(fresh[i] == 0);
    for (int n = 128; n < NR; n++) check_page(n);
    return 0;
}
