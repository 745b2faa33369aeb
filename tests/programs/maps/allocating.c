/* The allocator: alignment, sizes, errors, frees by other threads, threads that end. */
#include "check.h"
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>

static void sizes_and_alignment(void) {
    for (size_t size = 0; size < 300000; size += 1 + size / 3) {
        uint8_t *p = malloc(size);
        CHECK(p && ((uintptr_t)p & 15) == 0 && malloc_usable_size(p) >= size);
        memset(p, 0xa5, size);
        uint8_t *z = calloc(1, size);
        CHECK(z && zero(z, size));
        p = realloc(p, 2 * size + 1);
        for (size_t i = 0; i < size; i++) CHECK(p[i] == 0xa5);
        free(p), free(z);
    }
    for (size_t align = 16; align <= 64UL << 20; align *= 2) {
        void *p = NULL;
        CHECK(posix_memalign(&p, align, 100) == 0 && ((uintptr_t)p & (align - 1)) == 0);
        void *q = aligned_alloc(align, 2 * align);
        CHECK(q && ((uintptr_t)q & (align - 1)) == 0);
        memset(q, 1, 2 * align < PAGE ? 2 * align : PAGE);
        void *r = memalign(align, 3);
        CHECK(r && ((uintptr_t)r & (align - 1)) == 0);
        free(p), free(q), free(r);
    }
    void *v = valloc(10);
    CHECK(v && ((uintptr_t)v & (PAGE - 1)) == 0);
    free(v);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    CHECK(realloc(malloc(10), 0) == NULL);
}

static void errors_are_libcs(void) {
    volatile size_t huge = (size_t)1 << 62;
    FAILS(malloc(huge) == NULL, ENOMEM);
    FAILS(calloc(huge, 8) == NULL, ENOMEM);
    FAILS(reallocarray(NULL, huge, 8) == NULL, ENOMEM);
    char *p = malloc(10);
    strcpy(p, "kept");
    FAILS(realloc(p, huge) == NULL, ENOMEM);
    CHECK(strcmp(p, "kept") == 0);
    free(p);
    /* A block of its own mapping, and sizes that end where addresses do. */
    uint8_t *large = malloc(64 << 20);
    stamp(large, 32 << 20, 7);
    for (int shift = 13; shift < 40; shift++) {
        volatile size_t all = SIZE_MAX - ((size_t)1 << shift);
        FAILS(realloc(large, all) == NULL, ENOMEM);
        CHECK(malloc_usable_size(large) >= 64 << 20);
    }
    STAMPED(large, 32 << 20, 7);
    free(large);
    void *q = (void *)p;
    CHECK(posix_memalign(&q, 3, 8) == EINVAL && posix_memalign(&q, 16, huge) == ENOMEM && q == (void *)p);
}

static void what_libc_allocates_is_freed_by_the_program(void) {
    char *line = NULL;
    size_t cap = 0;
    FILE *f = tmpfile();
    CHECK(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "line %d %*s\n", i, i % 200, "x");
    rewind(f);
    for (int i = 0; i < 20000; i++) {
        CHECK(getline(&line, &cap, f) > 0);
        CHECK(atoi(line + 5) == i);
    }
    fclose(f);
    line = realloc(line, 1 << 20);
    CHECK(line);
    free(line);
    for (int i = 0; i < 1000; i++) {
        char *s = strdup("duplicated"), *n = strndup("duplicated", 4), *a = NULL;
        CHECK(asprintf(&a, "%s-%d", s, i) > 0 && strcmp(n, "dupl") == 0);
        free(s), free(n), free(a);
    }
    char *cwd = getcwd(NULL, 0), *real = realpath("/", NULL);
    CHECK(cwd && real);
    free(cwd), free(real);
    for (int i = 0; i < 100; i++) {
        DIR *d = opendir("/");
        CHECK(d && readdir(d));
        closedir(d);
    }
    char *mem = NULL;
    size_t len = 0;
    FILE *m = open_memstream(&mem, &len);
    for (int i = 0; i < 100000; i++) fprintf(m, "%d,", i);
    fclose(m);
    CHECK(len > 500000 && strncmp(mem, "0,1,2,", 6) == 0);
    free(mem);
}

enum { THREADS = 8, ROUNDS = 40, BLOCKS = 400 };
static uint64_t *handed_over[THREADS][BLOCKS];
static pthread_barrier_t barrier;

static void *worker(void *arg) {
    size_t me = (size_t)arg;
    uint64_t rng = 88172645463325252ULL + me;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
            size_t n = 2 + rng % (i % 50 == 0 ? 40000 : 200);
            uint64_t *b = malloc(n * 8);
            CHECK(b);
            b[0] = n;
            for (size_t k = 1; k < n; k++) b[k] = n ^ k;
            handed_over[me][i] = b;
        }
        pthread_barrier_wait(&barrier);
        size_t other = (me + 1 + round) % THREADS;
        for (int i = 0; i < BLOCKS; i++) {
            uint64_t *b = handed_over[other][i], n = b[0];
            for (size_t k = 1; k < n; k++) CHECK(b[k] == (n ^ k));
            free(b);
        }
        pthread_barrier_wait(&barrier);
    }
    return malloc(100);
}

static void threads_free_what_others_allocated(void) {
    pthread_t t[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, worker, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *left;
        CHECK(pthread_join(t[i], &left) == 0);
        free(left);
    }
}

static void *short_lived(void *arg) {
    char *p = malloc(1000);
    memset(p, 1, 1000);
    free(arg);
    return p;
}

static void threads_come_and_go(void) {
    void *p = malloc(1000);
    for (int i = 0; i < 500; i++) {
        pthread_t t;
        CHECK(pthread_create(&t, NULL, short_lived, p) == 0 && pthread_join(t, &p) == 0);
    }
    free(p);
}

static void memory_goes_back(void) {
    /* Much more than any limit these stories run under, one block after the other. */
    for (int i = 0; i < 40; i++) {
        size_t len = 64UL << 20;
        uint8_t *p = malloc(len);
        CHECK(p);
        for (size_t k = 0; k < len; k += PAGE) *(uint64_t *)(p + k) = (k + i) * 0x9e3779b97f4a7c15ULL;
        free(p);
    }
    size_t len = 1 << 20;
    uint8_t *p = malloc(len);
    memset(p, 7, len);
    for (; len < 96UL << 20; len += len / 2) {
        p = realloc(p, len + len / 2);
        CHECK(p && p[0] == 7 && p[len - 1] == 7);
        memset(p + len, 7, len / 2);
    }
    free(p);
    malloc_trim(0);
}

static void large_blocks_grow_and_shrink(void) {
    enum { NR = 3 };
    size_t len[NR] = {PAGE, PAGE, PAGE};
    uint8_t *p[NR];
    for (int i = 0; i < NR; i++) {
        p[i] = malloc(len[i]);
        CHECK(p[i]);
        stamp(p[i], len[i], i);
    }
    /* Side by side, so that none can always stay where it is. */
    for (int round = 0; round < 60; round++) {
        int i = round % NR;
        size_t to = (len[i] + len[i] / 2 + PAGE) & ~(PAGE - 1);
        if (to > 48UL << 20) to = 17UL << 20;
        p[i] = realloc(p[i], to);
        CHECK(p[i] && malloc_usable_size(p[i]) >= to && ((uintptr_t)p[i] & 15) == 0);
        STAMPED(p[i], len[i] < to ? len[i] : to, i);
        stamp(p[i], to, i);
        len[i] = to;
    }
    for (int i = 0; i < NR; i++) {
        STAMPED(p[i], len[i], i);
        p[i] = realloc(p[i], 2 * PAGE);
        STAMPED(p[i], 2 * PAGE, i);
        free(p[i]);
    }
    for (size_t size = 15UL << 20; size < 40UL << 20; size += 3 << 20) {
        uint8_t *a = malloc(size), *b = calloc(size / 8, 8);
        CHECK(a && b && a != b && zero(b, size));
        a[size - 1] = b[size - 1] = 1;
        memset(a, 2, PAGE), memset(b, 3, PAGE);
        free(b);
        b = calloc(1, size);
        CHECK(b && zero(b, size) && a[0] == 2 && a[size - 1] == 1);
        IN_CHILD({
            CHECK(a[size - 1] == 1);
            a = realloc(a, 2 * size);
            CHECK(a && a[0] == 2 && a[size - 1] == 1);
            free(a), free(b);
        });
        free(a), free(b);
    }
}

static void children_allocate(void) {
    char *before = strdup("before");
    IN_CHILD({
        CHECK(strcmp(before, "before") == 0);
        free(before);
        for (int i = 0; i < 10000; i++) free(malloc(i));
        pthread_t t;
        void *p = malloc(10);
        CHECK(pthread_create(&t, NULL, short_lived, p) == 0 && pthread_join(t, &p) == 0);
        FILE *f = fopen("/dev/null", "w");
        CHECK(f && fprintf(f, "x") == 1);
        fclose(f);
    });
    free(before);
}

int main(void) {
    sizes_and_alignment();
    errors_are_libcs();
    what_libc_allocates_is_freed_by_the_program();
    threads_free_what_others_allocated();
    threads_come_and_go();
    memory_goes_back();
    large_blocks_grow_and_shrink();
    children_allocate();
    puts("ok");
    return 0;
}
