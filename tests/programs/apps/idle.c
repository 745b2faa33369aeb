// idle MIB
//
// What: fills MIB of memory from two threads, says "idle", and sleeps until SIGTERM; then it checks
// its memory and says "right".
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t nr_pages;
static uint64_t *memory;

static void *fill(void *arg) {
    for (uint64_t page = (uintptr_t)arg; page < nr_pages; page += 2)
        for (unsigned i = 0; i < 512; i++)
            memory[page * 512 + i] = page + i % 8;
    return NULL;
}

int main(int argc, char **argv) {
    nr_pages = (argc > 1 ? strtoull(argv[1], NULL, 10) : 128) * 256;
    memory = mmap(NULL, nr_pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    pthread_t threads[2];
    for (uintptr_t t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, fill, (void *)t);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    puts("idle");
    fflush(stdout);
    int signal;
    sigwait(&end, &signal);
    for (uint64_t page = 0; page < nr_pages; page++)
        for (unsigned i = 0; i < 512; i++)
            if (memory[page * 512 + i] != page + i % 8) {
                puts("WRONG");
                return 1;
            }
    puts("right");
    return 0;
}
