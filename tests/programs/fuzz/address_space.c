/* Random steps in windows of address space: mappings made, changed and given up, memory accessed by
 * the program and by the kernel, in children, threads and handlers. It prints what each step did,
 * for comparison: under uzswap it has to print what it prints natively.
 *
 *     address_space SEED STEPS [STEP,STEP...]
 *
 * Each step depends on the seed and its number, not on those before: with a list, only those are
 * carried out. UZSWAP_FUZZ_TICKS in the environment: a timer evicts something every millisecond. */
#include "window.h"
#include "call_steps.h"
#include "mapping_steps.h"
#include "process_steps.h"
#include <sys/time.h>

typedef void step(struct actor *);
static const struct {
    step *step;
    int weight, in_threads;
} kinds[] = {
    {step_mmap, 22, 1},   {step_munmap, 7, 1}, {step_mprotect, 14, 1}, {step_madvise, 20, 1},
    {step_mlock, 2, 1},   {step_msync, 2, 1},  {step_mincore, 3, 1},   {step_mremap, 14, 1},
    {step_brk, 3, 0},     {step_touch, 24, 1}, {step_pipe, 8, 1},      {step_file, 6, 1},
    {step_vectors, 8, 1}, {step_socket, 6, 1}, {step_vm, 6, 1},        {step_futex, 3, 1},
    {step_small, 10, 1},  {step_fork, 3, 0},   {step_threads, 1, 0},   {step_signal, 3, 0},
};

static void one_step(struct actor *a) {
    int n = sizeof kinds / sizeof kinds[0], all = 0, k = 0;
    for (int i = 0; i < n; i++) all += kinds[i].weight;
    for (int draw = below(a, all); draw >= kinds[k].weight; k++) draw -= kinds[k].weight;
    if (a->threaded && !kinds[k].in_threads) return;
    kinds[k].step(a);
    say(a, "\n");
    if (chance(a, 3)) {
        struct range r = any_range(a);
        madvise(at(r.first), r.nr * PAGE, MADV_PAGEOUT);
    }
    if (chance(a, 12)) say_windows(a);
}

/* Steps of a thread or a child. */
static void steps(struct actor *a, int nr) {
    uint64_t seed = a->random;
    for (int i = 0; i < nr; i++) {
        a->random = mix(seed + i);
        say(a, " %d: ", i);
        one_step(a);
    }
    say_windows(a);
}

static int listed(const char *list, int number) {
    if (!list) return 1;
    for (char *end; *list; list = *end ? end + 1 : end)
        if (strtol(list, &end, 10) == number) return 1;
    return 0;
}

/* More than the limit leaves room for: the windows are evicted. */
static void press(void) {
    enum { BALLAST = 12 << 20 };
    static uint8_t *ballast;
    if (!ballast) {
        ballast = mmap(NULL, BALLAST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(ballast != MAP_FAILED);
    }
    for (size_t i = 0; i < BALLAST; i += 512) *(uint64_t *)(ballast + i) = mix(i);
}

/* Most of the windows, some of it filled. */
static void begin(struct actor *a) {
    for (int first = 16; first < windows[BREAK].first - 16; first += 48) {
        struct range r = {first, 40};
        if (window_end(first) < first + r.nr) r.nr = window_end(first) - first;
        MUST(mmap(at(first), r.nr * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at(first));
        mapped(a, r, PRIVATE, PROT_READ | PROT_WRITE);
        r.nr -= 8;
        fill(a, r);
    }
}

static void tick(int signal) {
    (void)signal;
    static unsigned count;
    int kept = errno, first = count++ * 37 % MANAGED_PAGES;
    madvise(at(first), (MANAGED_PAGES - first) * PAGE, MADV_PAGEOUT);
    errno = kept;
}

int main(int argc, char **argv) {
    static char text[1 << 22];
    static uint8_t buffer[BUFFER];
    MUST(argc >= 3);
    uint64_t seed = strtoul(argv[1], NULL, 10);
    int nr = atoi(argv[2]);
    struct actor a = {.first = 0, .end = PAGES, .text = text, .room = sizeof text, .buffer = buffer};
    /* So that malloc does not move the break later. */
    void *volatile first = malloc(1);
    free(first);
    windows[BREAK].base = (uint8_t *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
    catch_faults();
    open_files(&a);
    for (int w = MANAGED; w < BREAK; w++) {
        size_t len = (windows[w].end - windows[w].first) * PAGE;
        uint8_t *p = mmap(windows[w].base, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (w == EDGE && p == MAP_FAILED) MUST(mmap(windows[w].base, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == windows[w].base);
        else MUST(p == windows[w].base);
        MUST(munmap(windows[w].base, len) == 0);
    }
    begin(&a);
    if (getenv("UZSWAP_FUZZ_TICKS")) {
        struct sigaction act = {.sa_handler = tick, .sa_flags = SA_RESTART};
        struct itimerval every = {{0, 1000}, {0, 1000}};
        MUST(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    }
    for (int i = 0; i < nr; i++) {
        a.random = mix(seed * 1000003 + i);
        a.next_vma = (i + 1) * 1000000;
        if (!listed(argc > 3 ? argv[3] : NULL, i)) continue;
        say(&a, "%d: ", i);
        one_step(&a);
        if (i % 32 == 0) press();
        MUST(write(1, a.text, a.len) == (ssize_t)a.len);
        a.len = 0;
    }
    say_windows(&a);
    MUST(write(1, a.text, a.len) == (ssize_t)a.len);
    return 0;
}
