/* Many threads change the address space at once, each its own mappings, against what each page must
 * hold. Arguments: threads, operations, seed. */
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { MAPPINGS = 6, MOST = 512 };

struct mapping {
    uint8_t *at;
    size_t pages;
    int prot;
    uint64_t want[MOST]; /* 0: reads as zero */
};

static int nr_ops = 3000;
static uint64_t seed;

static uint64_t next(uint64_t *rng) {
    *rng ^= *rng << 13, *rng ^= *rng >> 7, *rng ^= *rng << 17;
    return *rng;
}

static void verify(struct mapping *m, size_t from, size_t nr, uint64_t tag) {
    if (!(m->prot & PROT_READ)) return;
    for (size_t i = from; i < from + nr; i++) {
        uint64_t *w = (uint64_t *)(m->at + i * PAGE);
        uint64_t want = m->want[i];
        if (w[0] != want || w[255] != want * 3 || w[511] != ~want * (want != 0)) {
            fprintf(stderr, "seed %llu thread %llu: page %zu of %p: %llx %llx %llx, not %llx\n",
                    (unsigned long long)seed, (unsigned long long)tag, i, (void *)m->at, (unsigned long long)w[0],
                    (unsigned long long)w[255], (unsigned long long)w[511], (unsigned long long)want);
            abort();
        }
    }
}

static void fill(struct mapping *m, size_t from, size_t nr, uint64_t *rng) {
    if (!(m->prot & PROT_WRITE)) return;
    for (size_t i = from; i < from + nr; i++) {
        uint64_t *w = (uint64_t *)(m->at + i * PAGE), v = next(rng) | 1;
        w[0] = m->want[i] = v, w[255] = v * 3, w[511] = ~v;
    }
}

static void *worker(void *arg) {
    uint64_t tag = (uintptr_t)arg, rng = seed * 0x9e3779b97f4a7c15ULL + tag * 77 + 1;
    struct mapping *all = calloc(MAPPINGS, sizeof *all);
    CHECK(all);
    for (int op = 0; op < nr_ops; op++) {
        struct mapping *m = &all[next(&rng) % MAPPINGS];
        if (!m->at) {
            m->pages = 1 + next(&rng) % (MOST / 2);
            m->prot = PROT_READ | PROT_WRITE;
            m->at = rw(m->pages * PAGE);
            memset(m->want, 0, sizeof m->want);
            if (next(&rng) % 2) fill(m, 0, m->pages, &rng);
            continue;
        }
        size_t from = next(&rng) % m->pages, nr = 1 + next(&rng) % (m->pages - from);
        uint8_t *at = m->at + from * PAGE;
        switch (next(&rng) % 16) {
        case 0:
            verify(m, 0, m->pages, tag);
            CHECK(munmap(m->at, m->pages * PAGE) == 0);
            m->at = NULL;
            break;
        case 1:
            CHECK(madvise(at, nr * PAGE, MADV_DONTNEED) == 0);
            memset(m->want + from, 0, nr * 8);
            break;
        case 2:
            CHECK(madvise(at, nr * PAGE, MADV_PAGEOUT) == 0);
            break;
        case 3: {
            /* The whole mapping, so that it stays one: mremap wants that. */
            int prots[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
            m->prot = prots[next(&rng) % 3];
            CHECK(mprotect(m->at, m->pages * PAGE, m->prot) == 0);
            break;
        }
        case 4: {
            /* A part is read-only for a while. */
            if (m->prot != (PROT_READ | PROT_WRITE)) break;
            CHECK(mprotect(at, nr * PAGE, PROT_READ) == 0);
            verify(m, from, nr, tag);
            CHECK(mprotect(at, nr * PAGE, PROT_READ | PROT_WRITE) == 0);
            break;
        }
        case 5: {
            size_t to = 1 + next(&rng) % MOST;
            uint8_t *p = mremap(m->at, m->pages * PAGE, to * PAGE, MREMAP_MAYMOVE);
            if (p == MAP_FAILED) {
                CHECK(errno == EFAULT); /* in parts: the kernel does not merge all that could be */
                break;
            }
            if (to > m->pages) memset(m->want + m->pages, 0, (to - m->pages) * 8);
            m->at = p, m->pages = to;
            break;
        }
        case 6: {
            if (m->prot != (PROT_READ | PROT_WRITE)) break;
            CHECK(mmap(at, nr * PAGE, m->prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
            memset(m->want + from, 0, nr * 8);
            break;
        }
        case 7: {
            unsigned char v[MOST];
            CHECK(mincore(m->at, m->pages * PAGE, v) == 0);
            break;
        }
        case 8:
        case 9:
        case 10:
            fill(m, from, nr, &rng);
            break;
        default:
            verify(m, from, nr, tag);
        }
    }
    for (int i = 0; i < MAPPINGS; i++)
        if (all[i].at) {
            verify(&all[i], 0, all[i].pages, tag);
            CHECK(munmap(all[i].at, all[i].pages * PAGE) == 0);
        }
    free(all);
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? strtoul(argv[1], NULL, 0) : 8;
    nr_ops = argc > 2 ? atoi(argv[2]) : 3000;
    seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    pthread_t t[64];
    CHECK(threads <= 64);
    for (size_t i = 0; i < threads; i++) CHECK(pthread_create(&t[i], NULL, worker, (void *)i) == 0);
    for (size_t i = 0; i < threads; i++) CHECK(pthread_join(t[i], NULL) == 0);
    puts("ok");
    return 0;
}
