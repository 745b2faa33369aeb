// race MIB THREADS ROUNDS SEED
//
// What: a mutex and a counter are inside every page of memory that is being evicted meanwhile.
// THREADS threads pick pages at random, take the page's mutex, check that the counter inside is
// what an atomic counter kept outside says, and raise both. Other words of the page are raised
// without any lock, by atomic additions; a condition variable and a semaphore in evicted pages pass a token
// around. A lost or repeated write shows as a difference.
//
// Exit status: 0 all was right, 1 it was not (stderr says what), 2 usage.
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, NR_FREE = 16 };

struct page {
    uint64_t number;
    pthread_mutex_t mutex;
    uint64_t count;
    _Atomic uint64_t free_for_all[NR_FREE];
    pthread_cond_t cond;
    sem_t sem;
    uint64_t filler[];
};
_Static_assert(sizeof(struct page) < PAGE, "fits a page");

// Kept in shared memory, which nothing evicts.
struct reference {
    _Atomic uint64_t count;
    _Atomic uint64_t free_for_all[NR_FREE];
};

static uint64_t nr_pages, nr_threads, rounds, seed;
static unsigned char *memory;
static struct reference *reference;
static atomic_int wrong;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static struct page *page_at(uint64_t page) { return (struct page *)(memory + page * PAGE); }

static void *map(size_t len, int flags) {
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void must(int rc, const char *what) {
    if (rc) {
        fprintf(stderr, "WRONG: %s failed with %d\n", what, rc);
        exit(1);
    }
}

static void *worker(void *arg) {
    uint64_t rng = mix(seed + (uintptr_t)arg * 7919);
    for (uint64_t n = 0; n < rounds / nr_threads && !wrong; n++) {
        rng = mix(rng);
        // Half of the time, few pages that all threads fight for.
        uint64_t at = rng & 1 ? rng / 2 % nr_pages : rng / 2 % 8 * (nr_pages / 8);
        struct page *p = page_at(at);
        must(pthread_mutex_lock(&p->mutex), "pthread_mutex_lock");
        uint64_t want = atomic_load(&reference[at].count);
        if (p->count != want || p->number != at) {
            fprintf(stderr, "WRONG: page %" PRIu64 " counts %" PRIu64 ", reference %" PRIu64 "\n",
                    at, p->count, want);
            atomic_store(&wrong, 1);
        }
        p->count++;
        atomic_fetch_add(&reference[at].count, 1);
        must(pthread_mutex_unlock(&p->mutex), "pthread_mutex_unlock");
        unsigned slot = rng >> 40 & (NR_FREE - 1);
        atomic_fetch_add(&p->free_for_all[slot], 1);
        atomic_fetch_add(&reference[at].free_for_all[slot], 1);
    }
    return NULL;
}

// A token goes round between two threads through a condition variable in one page and a semaphore
// in another, while the workers have both evicted again and again.
static uint64_t token_rounds;

static void *ping(void *arg) {
    (void)arg;
    struct page *a = page_at(nr_pages / 2), *b = page_at(nr_pages / 3);
    for (uint64_t n = 0; n < token_rounds; n++) {
        must(pthread_mutex_lock(&a->mutex), "pthread_mutex_lock");
        while (a->filler[0] % 2 != 0)
            pthread_cond_wait(&a->cond, &a->mutex);
        a->filler[0]++;
        pthread_cond_broadcast(&a->cond);
        must(pthread_mutex_unlock(&a->mutex), "pthread_mutex_unlock");
        must(sem_post(&b->sem), "sem_post");
    }
    return NULL;
}

static void *pong(void *arg) {
    (void)arg;
    struct page *a = page_at(nr_pages / 2), *b = page_at(nr_pages / 3);
    for (uint64_t n = 0; n < token_rounds; n++) {
        while (sem_wait(&b->sem))
            ;
        must(pthread_mutex_lock(&a->mutex), "pthread_mutex_lock");
        while (a->filler[0] % 2 != 1)
            pthread_cond_wait(&a->cond, &a->mutex);
        a->filler[0]++;
        pthread_cond_broadcast(&a->cond);
        must(pthread_mutex_unlock(&a->mutex), "pthread_mutex_unlock");
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: race MIB THREADS ROUNDS SEED\n");
        return 2;
    }
    nr_pages = strtoull(argv[1], NULL, 10) * 256;
    nr_threads = strtoull(argv[2], NULL, 10);
    rounds = strtoull(argv[3], NULL, 10);
    seed = strtoull(argv[4], NULL, 10);
    if (!nr_pages || !nr_threads || nr_threads > 256)
        return 2;
    token_rounds = rounds / 100;
    memory = map(nr_pages * PAGE, MAP_PRIVATE);
    reference = map(nr_pages * sizeof *reference, MAP_SHARED);
    for (uint64_t at = 0; at < nr_pages; at++) {
        struct page *p = page_at(at);
        p->number = at;
        // Robust, recursive and plain ones lie differently in memory and take different paths.
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        if (at % 3 == 1)
            pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
        if (at % 3 == 2)
            pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
        must(pthread_mutex_init(&p->mutex, &attr), "pthread_mutex_init");
        pthread_mutexattr_destroy(&attr);
        must(pthread_cond_init(&p->cond, NULL), "pthread_cond_init");
        must(sem_init(&p->sem, 0, 0), "sem_init");
        for (unsigned i = 0; i < 32; i++)
            p->filler[i + 1] = mix(at * 64 + i);
    }
    pthread_t threads[258];
    for (uint64_t t = 0; t < nr_threads; t++)
        must(pthread_create(&threads[t], NULL, worker, (void *)(uintptr_t)t), "pthread_create");
    must(pthread_create(&threads[nr_threads], NULL, ping, NULL), "pthread_create");
    must(pthread_create(&threads[nr_threads + 1], NULL, pong, NULL), "pthread_create");
    for (uint64_t t = 0; t < nr_threads + 2; t++)
        pthread_join(threads[t], NULL);
    uint64_t total = 0;
    for (uint64_t at = 0; at < nr_pages && !wrong; at++) {
        struct page *p = page_at(at);
        if (p->number != at || p->count != atomic_load(&reference[at].count)) {
            fprintf(stderr, "WRONG at the end: page %" PRIu64 "\n", at);
            wrong = 1;
        }
        for (unsigned i = 0; i < 32; i++)
            if (p->filler[i + 1] != mix(at * 64 + i)) {
                fprintf(stderr, "WRONG filler: page %" PRIu64 "\n", at);
                wrong = 1;
                break;
            }
        for (unsigned i = 0; i < NR_FREE; i++)
            if (p->free_for_all[i] != reference[at].free_for_all[i]) {
                fprintf(stderr, "WRONG lock-free count: page %" PRIu64 "\n", at);
                wrong = 1;
                break;
            }
        total += p->count;
    }
    if (page_at(nr_pages / 2)->filler[0] != 2 * token_rounds) {
        fprintf(stderr, "WRONG: the token went round %" PRIu64 " times\n",
                page_at(nr_pages / 2)->filler[0]);
        wrong = 1;
    }
    printf("race: %" PRIu64 " pages, %" PRIu64 " threads, %" PRIu64 " rounds, seed %" PRIu64 ": %s\n",
           nr_pages, nr_threads, total, seed, wrong ? "WRONG" : "right");
    return wrong != 0;
}
