/* Address space that is reserved without access, then opened and given up piece by piece: more than
 * a terabyte, trimmed to an alignment, at an address that the program asks for, and so much that
 * not all of it is managed. */
#include "check.h"
#include <fcntl.h>

#define MIB (1UL << 20)
#define GIB (1UL << 30)
#define TIB (1UL << 40)
#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#define OPEN (PROT_READ | PROT_WRITE)

static uint8_t *reserve(void *hint, size_t len) {
    uint8_t *p = mmap(hint, len, PROT_NONE, RESERVED, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static size_t resident(void) {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    size_t all, here;
    CHECK(sscanf(text, "%zu %zu", &all, &here) == 2);
    return here * PAGE;
}

/* Pieces far apart, by mprotect and by a mapping over it; twice as much in all as there is room. */
static void use(uint8_t *p, size_t len, int managed) {
    enum { PIECES = 12 };
    size_t step = len / PIECES & ~(PAGE - 1), piece = 4 * MIB;
    for (int i = 0; i < PIECES; i++) {
        uint8_t *at = p + i * step;
        if (i % 2)
            CHECK(mprotect(at, piece, OPEN) == 0);
        else
            CHECK(mmap(at, piece, OPEN, RESERVED | MAP_FIXED, -1, 0) == at);
        CHECK(zero(at, PAGE));
        stamp(at, piece, i);
    }
    if (managed && getenv("UZSWAP_GROUP_FILE")) CHECK(resident() < 32 * MIB);
    for (int i = 0; i < PIECES; i++) STAMPED(p + i * step, piece, i);
    IN_CHILD(STAMPED(p + step, piece, 1); stamp(p, piece, 9); STAMPED(p, piece, 9));
    for (int i = 0; i < PIECES; i++) {
        uint8_t *at = p + i * step;
        STAMPED(at, piece, i);
        if (i % 2)
            CHECK(madvise(at, piece, MADV_DONTNEED) == 0 && mprotect(at, piece, PROT_NONE) == 0);
        else
            CHECK(mmap(at, piece, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == at);
        CHECK(mprotect(at, piece, OPEN) == 0 && zero(at, piece));
    }
    CHECK(munmap(p, len) == 0);
}

static void a_terabyte_and_a_guard(void) {
    size_t len = TIB + 64 * GIB;
    use(reserve(NULL, len), len, 1);
}

static void aligned_by_trimming(void) {
    size_t len = 16 * GIB;
    uint8_t *p = reserve(NULL, 2 * len);
    uint8_t *at = (uint8_t *)(((uintptr_t)p + len - 1) & ~(len - 1));
    if (at > p) CHECK(munmap(p, at - p) == 0);
    CHECK(munmap(at + len, p + 2 * len - (at + len)) == 0);
    use(at, len, 1);
}

/* As garbage collectors do that keep facts about an object in its address. */
static void where_the_program_wants_it(void) {
    uint8_t *wanted = (uint8_t *)(18 * TIB);
    CHECK(reserve(wanted, 4 * GIB) == wanted);
    uint8_t *second = reserve(wanted + GIB, 4 * GIB);
    CHECK(second + 4 * GIB <= wanted || second >= wanted + 4 * GIB);
    CHECK(munmap(second, 4 * GIB) == 0);
    FAILS(mmap(wanted + GIB, TIB, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED,
          EEXIST);
    use(wanted, 4 * GIB, 1);
    CHECK(mmap(wanted, TIB, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0) == wanted);
    CHECK(munmap(wanted, TIB) == 0);
}

/* The same, where nothing is managed. */
static void where_the_program_has_it_in_its_code(void) {
    for (size_t tib = 4; tib <= 8; tib += 4) {
        uint8_t *wanted = (uint8_t *)(tib * TIB);
        CHECK(reserve(wanted, 4 * GIB) == wanted);
        CHECK(mprotect(wanted + GIB, MIB, OPEN) == 0);
        stamp(wanted + GIB, MIB, tib);
        STAMPED(wanted + GIB, MIB, tib);
        CHECK(munmap(wanted, 4 * GIB) == 0);
    }
}

/* Others still find room. */
static void more_than_all_there_is(void) {
    uint8_t *first = reserve(NULL, 6 * TIB), *second = reserve(NULL, 2 * TIB);
    uint8_t *third = reserve(NULL, 2 * TIB), *more = rw(64 * MIB);
    stamp(more, 64 * MIB, 5);
    use(first, 6 * TIB, 0);
    use(second, 2 * TIB, 0);
    use(third, 2 * TIB, 0);
    STAMPED(more, 64 * MIB, 5);
    CHECK(munmap(more, 64 * MIB) == 0);
}

int main(void) {
    a_terabyte_and_a_guard();
    aligned_by_trimming();
    where_the_program_wants_it();
    where_the_program_has_it_in_its_code();
    more_than_all_there_is();
    puts("ok");
    return 0;
}
