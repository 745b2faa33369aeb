// pattern MIB THREADS ORDER ACCESSES SEED [SOURCE [lossy]]
//
// What: fills MIB of anonymous memory with pages that carry their own number and a changing stamp,
// then reads, checks and rewrites pages from THREADS threads, ACCESSES times in all, in the given
// ORDER (random, sequential, strided or mixed), and at the end compares every page with a
// reference copy. SOURCE says where the memory comes from: mmap (default), malloc or new-pages
// (mmap in pieces).
//
// In a lossy run pages may become unreadable: an access to such a page, and to no other, raises
// SIGBUS. The program maps the page again, writes it, and prints how often that happened. All
// readable pages must be right all the same.
//
// Each page belongs to one thread, and neighbouring pages belong to different threads, so that all
// threads fault in the same folios at the same time. What a page must hold follows from its number
// and its stamp; the stamps are kept in shared memory, which no compressed memory manages.
//
// Exit status: 0 all was right, 1 a page was wrong (stderr says which), 2 usage.
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, NR_RANDOM = 8 };

static uint64_t nr_pages, nr_threads, accesses, seed;
static const char *order;
static unsigned char **base; // start of each 1 MiB piece
static uint32_t *stamps;     // the reference: shared memory
static atomic_int wrong;
static int lossy;
static atomic_int lost; // accesses that ended in SIGBUS
static _Thread_local sigjmp_buf is_lost;
static _Thread_local volatile uint64_t touched; // the page that this thread accesses

// Nonzero, for the second time, when an access to the page ended in SIGBUS.
#define LOST(page) (lossy && (touched = (page), sigsetjmp(is_lost, 1)))

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint64_t *page_at(uint64_t page) {
    return (uint64_t *)(base[page / 256] + page % 256 * PAGE);
}

// A page is of one of three kinds for life: one in 16 repeats one word (same-filled), one in 64
// is random (does not compress), all others compress about twentyfold.
enum kind { RECORDS, SAME, NOISE };

static enum kind kind_of(uint64_t page) {
    uint64_t h = mix(page ^ seed << 20);
    return h % 16 == 0 ? SAME : h / 16 % 64 == 0 ? NOISE : RECORDS;
}

// The word that belongs at index i (2 <= i < WORDS - 1) of a page of records or noise. Rewriting a
// page with an even stamp changes only its stamps; with an odd one, everything.
static uint64_t word(enum kind kind, uint64_t page, uint32_t stamp, unsigned i) {
    uint64_t generation = (stamp + 1) / 2;
    if (kind == NOISE || i < 2 + NR_RANDOM)
        return mix(page << 32 ^ generation << 9 ^ i ^ seed);
    return (uint64_t)(i % 4) << 32 | generation << 8 | (page & 0xff);
}

static void write_page(uint64_t page, uint32_t stamp, int all) {
    volatile uint64_t *p = page_at(page);
    enum kind kind = kind_of(page);
    if (kind == SAME) {
        // The stamp is the word: now and then all zeroes.
        uint64_t w = stamp % 4 == 3 ? 0 : mix(page) ^ stamp;
        for (unsigned i = 0; i < WORDS; i++)
            p[i] = w;
        return;
    }
    p[0] = page;
    p[1] = stamp;
    if (all || stamp % 2 == 1)
        for (unsigned i = 2; i < WORDS - 1; i++)
            p[i] = word(kind, page, stamp, i);
    p[WORDS - 1] = (uint64_t)stamp ^ page << 32;
}

static void complain(const char *when, uint64_t page, uint32_t stamp, unsigned i, uint64_t want,
                     uint64_t got) {
    fprintf(stderr,
            "WRONG %s: page %" PRIu64 " (%p, kind %d) stamp %u word %u: want %016" PRIx64
            " got %016" PRIx64 "\n",
            when, page, (void *)page_at(page), kind_of(page), stamp, i, want, got);
    atomic_fetch_add(&wrong, 1);
}

static int check_page(const char *when, uint64_t page, uint32_t stamp) {
    volatile uint64_t *p = page_at(page);
    enum kind kind = kind_of(page);
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t want;
        if (kind == SAME)
            want = stamp % 4 == 3 ? 0 : mix(page) ^ stamp;
        else if (i == 0)
            want = page;
        else if (i == 1)
            want = stamp;
        else if (i == WORDS - 1)
            want = (uint64_t)stamp ^ page << 32;
        else
            want = word(kind, page, stamp, i);
        uint64_t got = p[i];
        if (got != want) {
            complain(when, page, stamp, i, want, got);
            return 0;
        }
    }
    return 1;
}

static void on_sigbus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_code != BUS_ADRERR ||
        (uintptr_t)info->si_addr / PAGE != (uintptr_t)page_at(touched) / PAGE) {
        static const char text[] = "WRONG: SIGBUS for another page than was accessed\n";
        _exit(write(2, text, sizeof text - 1) > 0 ? 1 : 2);
    }
    atomic_fetch_add(&lost, 1);
    siglongjmp(is_lost, 1);
}

// Checks a page of this thread's, and changes it.
static int use_page(uint64_t page, int rewrite) {
    if (LOST(page)) {
        if (mmap(page_at(page), PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
            perror("mmap");
            exit(1);
        }
        write_page(page, ++stamps[page], 1);
        return 1;
    }
    if (!check_page("access", page, stamps[page]))
        return 0;
    if (rewrite)
        write_page(page, ++stamps[page], 0);
    return 1;
}

// Reads another thread's page, which that may be writing: its number stays.
static int look_at(uint64_t page) {
    if (kind_of(page) == SAME || LOST(page))
        return 1;
    uint64_t got = atomic_load_explicit((_Atomic uint64_t *)page_at(page), memory_order_relaxed);
    // Zero: its owner has just mapped it again.
    if (got == page || (lossy && !got))
        return 1;
    complain("neighbour", page, 0, 0, page, got);
    return 0;
}

static void *worker(void *arg) {
    uint64_t me = (uintptr_t)arg;
    uint64_t mine = (nr_pages - me + nr_threads - 1) / nr_threads;
    uint64_t rng = mix(seed + me * 7919);
    uint64_t stride = 61, at = rng % mine;
    for (uint64_t n = 0; n < accesses / nr_threads; n++) {
        const char *o = order;
        if (!strcmp(o, "mixed")) {
            static const char *const orders[] = {"random", "sequential", "strided"};
            o = orders[n / 1024 % 3];
        }
        rng = mix(rng);
        if (*o == 'r')
            at = rng % mine;
        else if (*o == 's' && o[1] == 'e')
            at = (at + 1) % mine;
        else
            at = (at + stride) % mine;
        // Two accesses of three also write.
        if (!use_page(at * nr_threads + me, n % 3 != 2) || !look_at(rng / 7 % nr_pages))
            return NULL;
    }
    return NULL;
}

static void *filler(void *arg) {
    for (uint64_t page = (uintptr_t)arg; page < nr_pages; page += nr_threads)
        write_page(page, 0, 1);
    return NULL;
}

static int is_right_at_the_end(uint64_t page) {
    return LOST(page) || check_page("the end", page, stamps[page]);
}

static void *checker(void *arg) {
    for (uint64_t page = (uintptr_t)arg; page < nr_pages; page += nr_threads)
        if (!is_right_at_the_end(page))
            break;
    return NULL;
}

static void on_all_threads(void *(*work)(void *)) {
    pthread_t threads[256];
    for (uint64_t t = 0; t < nr_threads; t++)
        if (pthread_create(&threads[t], NULL, work, (void *)(uintptr_t)t)) {
            perror("pthread_create");
            exit(1);
        }
    for (uint64_t t = 0; t < nr_threads; t++)
        pthread_join(threads[t], NULL);
}

static void *map(size_t len, int flags) {
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: pattern MIB THREADS ORDER ACCESSES SEED [mmap|malloc|pieces [lossy]]\n");
        return 2;
    }
    uint64_t mib = strtoull(argv[1], NULL, 10);
    nr_threads = strtoull(argv[2], NULL, 10);
    order = argv[3];
    accesses = strtoull(argv[4], NULL, 10);
    seed = strtoull(argv[5], NULL, 10);
    const char *source = argc > 6 ? argv[6] : "mmap";
    lossy = argc > 7;
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    if (lossy)
        sigaction(SIGBUS, &action, NULL);
    if (!mib || !nr_threads || nr_threads > 256)
        return 2;
    nr_pages = mib * 256;
    stamps = map(nr_pages * sizeof *stamps, MAP_SHARED);
    base = map(mib * sizeof *base, MAP_SHARED);
    unsigned char *all = NULL;
    if (!strcmp(source, "mmap"))
        all = map(mib << 20, MAP_PRIVATE);
    for (uint64_t i = 0; i < mib; i++) {
        if (all)
            base[i] = all + (i << 20);
        else if (!strcmp(source, "malloc"))
            base[i] = (unsigned char *)malloc((1 << 20) + 16) + 8; // words stay aligned, pages do not
        else
            base[i] = map(1 << 20, MAP_PRIVATE);
    }
    on_all_threads(filler);
    if (accesses)
        on_all_threads(worker);
    if (!wrong)
        on_all_threads(checker);
    uint64_t digest = 0;
    for (uint64_t page = 0; page < nr_pages && !wrong && !lossy; page++)
        digest = mix(digest ^ page_at(page)[1] ^ stamps[page]);
    printf("pattern: %" PRIu64 " MiB, %" PRIu64 " threads, %s, %" PRIu64 " accesses, seed %" PRIu64
           ", %s: %s, digest %016" PRIx64 "\n",
           mib, nr_threads, order, accesses, seed, source, wrong ? "WRONG" : "right", digest);
    if (lossy)
        printf("lost %d\n", lost);
    return wrong != 0;
}
