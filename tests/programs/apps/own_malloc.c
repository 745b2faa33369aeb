// own_malloc MIB
//
// What: brings its own malloc family, which counts every call: the executable's definitions win
// over any library's, so it sees a call from anywhere in the process. It touches MIB of memory
// again and again, far more than may be resident, and checks that no fault has called malloc, both
// with plain accesses and while its own heap's lock is held.
//
// Exit status: 0 no fault called malloc, 1 some did.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_ulong calls;
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(4096) unsigned char heap[64 << 20];
static size_t used;

static void *take(size_t len, size_t align) {
    atomic_fetch_add(&calls, 1);
    pthread_mutex_lock(&heap_lock);
    size_t at = (used + align - 1 + 16) & ~(align - 1);
    if (at + len > sizeof heap) {
        pthread_mutex_unlock(&heap_lock);
        errno = ENOMEM;
        return NULL;
    }
    used = at + len;
    *(size_t *)(heap + at - 8) = len;
    pthread_mutex_unlock(&heap_lock);
    return heap + at;
}

void *malloc(size_t len) { return take(len, 16); }
void free(void *p) {
    (void)p;
    atomic_fetch_add(&calls, 1);
}
void *calloc(size_t n, size_t len) { return take(n * len, 16); }
void *realloc(void *p, size_t len) {
    void *to = take(len, 16);
    if (p && to) {
        size_t old = *(size_t *)((unsigned char *)p - 8);
        memcpy(to, p, old < len ? old : len);
    }
    return to;
}
void *aligned_alloc(size_t align, size_t len) { return take(len, align < 16 ? 16 : align); }
void *memalign(size_t align, size_t len) { return take(len, align < 16 ? 16 : align); }
int posix_memalign(void **p, size_t align, size_t len) {
    *p = take(len, align < 16 ? 16 : align);
    return *p ? 0 : ENOMEM;
}

static uint64_t nr_pages;
static volatile uint64_t *memory;
static atomic_int wrong;

static void touch(uint64_t seed) {
    for (uint64_t i = 0; i < nr_pages; i++) {
        uint64_t page = seed % 2 ? i : (i * 2654435761u + seed) % nr_pages;
        if (memory[page * 512] != page)
            wrong = 1;
        memory[page * 512 + 1 + seed] = seed;
    }
}

static void *touch_on_thread(void *arg) {
    touch((uintptr_t)arg);
    return NULL;
}

int main(int argc, char **argv) {
    nr_pages = (argc > 1 ? strtoull(argv[1], NULL, 10) : 128) * 256;
    memory = mmap(NULL, nr_pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (uint64_t page = 0; page < nr_pages; page++)
        memory[page * 512] = page;
    pthread_t thread;
    if (pthread_create(&thread, NULL, touch_on_thread, (void *)1))
        return 2;
    pthread_join(thread, NULL);
    unsigned long before = calls;
    touch(2);
    touch(3);
    unsigned long plain = calls - before;
    // A fault handler that called malloc now would wait for ever.
    pthread_mutex_lock(&heap_lock);
    touch(4);
    touch(5);
    pthread_mutex_unlock(&heap_lock);
    unsigned long held = calls - before - plain;
    printf("own_malloc: %lu calls in plain faults, %lu under the heap's lock, data %s\n", plain, held,
           wrong ? "WRONG" : "right");
    return plain || held || wrong;
}
