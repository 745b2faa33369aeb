/* The windows of address space in which the fuzzer works, what it knows of their pages, and how it
 * looks at them. Pages are numbered through all windows, so that output names no address. */
#ifndef WINDOW_H
#define WINDOW_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define TIB (1UL << 40)
#define MUST(cond)                                                                            \
    do {                                                                                      \
        if (!(cond)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #cond, strerror(errno));  \
            _exit(99);                                                                        \
        }                                                                                     \
    } while (0)

/* MANAGED lies where mappings by hint are managed, OUTSIDE where none are, EDGE across the end of
 * that range, BREAK between the first program break and the present one. (What is above it is
 * reserved, not free, for a program without the C library's functions in between.) */
enum { MANAGED, OUTSIDE, EDGE, BREAK, WINDOWS };
enum { MANAGED_PAGES = 256, SMALL_PAGES = 64, BREAK_PAGES = 16 };
enum { PAGES = MANAGED_PAGES + 2 * SMALL_PAGES + BREAK_PAGES, THREADS = 3 };
struct window {
    int first, end;
    uint8_t *base;
};
static struct window windows[WINDOWS] = {
    {0, 256, (uint8_t *)(18 * TIB)},
    {256, 320, (uint8_t *)(32 * TIB)},
    {320, 384, (uint8_t *)(20 * TIB - 32 * PAGE)},
    {384, 384, NULL},
};

/* What is known of a page, by which the generator keeps from what differs for good reason. */
enum kind { NOTHING, PRIVATE, SHARED, FILE_PRIVATE, FILE_SHARED, GROWSDOWN };
struct page {
    uint32_t vma; /* pages of one number are of one VMA; those of two may be, too, if merged */
    uint8_t kind, prot, locked, written;
    uint8_t foreign; /* came from where nothing is managed */
};
static struct page pages[PAGES];

/* Who carries out steps: the program, one of its threads, or a child. */
struct actor {
    int first, end; /* its pages */
    int depth, threaded;
    uint64_t random;
    uint32_t next_vma;
    int memfd, pipe[2], stream[2], dgram[2];
    char *text;
    size_t len, room;
    uint8_t *buffer; /* BUFFER bytes that are in no window */
};
enum { BUFFER = 64 << 10, FILE_PAGES = 24 };

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}
static uint32_t below(struct actor *a, uint32_t n) {
    a->random = mix(a->random);
    return (uint32_t)(a->random >> 32) % n;
}
static int chance(struct actor *a, uint32_t n) { return below(a, n) == 0; }
#define PICK(a, ...) \
    ((const int[]){__VA_ARGS__})[below(a, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))]

static void say(struct actor *a, const char *format, ...) {
    va_list args;
    va_start(args, format);
    a->len += vsnprintf(a->text + a->len, a->room - a->len, format, args);
    va_end(args);
    MUST(a->len < a->room);
}
static void say_result(struct actor *a, long result) {
    if (result == -1)
        say(a, " = -%d", errno);
    else
        say(a, " = %ld", result);
}

static uint8_t *at(int page) {
    int w = 0;
    while (page >= windows[w].end) w++;
    return windows[w].base + (page - windows[w].first) * PAGE;
}
static int window_end(int page) {
    int w = 0;
    while (page >= windows[w].end) w++;
    return windows[w].end;
}
static int in_windows(const uint8_t *p, size_t len) {
    for (int w = 0; w < WINDOWS; w++)
        if (p < windows[w].base + (windows[w].end - windows[w].first) * PAGE &&
            p + len > windows[w].base)
            return 1;
    return 0;
}

/* A range of pages of one window. */
struct range {
    int first, nr;
};
static int any_page(struct actor *a) {
    if (a->end <= MANAGED_PAGES) return a->first + below(a, a->end - a->first);
    int page;
    do {
        uint32_t w = below(a, 20);
        w = w < 14 ? MANAGED : w < 16 ? OUTSIDE : w < 18 ? EDGE : BREAK;
        int nr = windows[w].end - windows[w].first;
        page = nr > 0 ? windows[w].first + (int)below(a, nr) : -1;
    } while (page < a->first);
    return page;
}
static int last_of(struct actor *a, int page) {
    int end = window_end(page);
    return end < a->end ? end : a->end;
}
static struct range any_range(struct actor *a) {
    int first = any_page(a), most = last_of(a, first) - first;
    int nr = 1 + below(a, PICK(a, 1, 3, 8, 8, 40, 256));
    return (struct range){first, nr < most ? nr : most};
}
/* As any_range, but what follows the program break can only be moved by brk. */
static struct range mappable_range(struct actor *a) {
    struct range r;
    do r = any_range(a);
    while (r.first >= windows[BREAK].first);
    return r;
}

static int usable(int page, int prot) {
    int kind = pages[page].kind;
    return (kind == PRIVATE || kind == SHARED) && (pages[page].prot & prot) == prot;
}
static int all_usable(struct range r, int prot) {
    for (int i = r.first; i < r.first + r.nr; i++)
        if (!usable(i, prot)) return 0;
    return 1;
}
/* A range within one VMA, or none (nr 0). */
static int across_edge(struct range r) {
    int edge = windows[EDGE].first + SMALL_PAGES / 2;
    return r.first < edge && edge < r.first + r.nr;
}
static struct range one_vma(struct actor *a) {
    for (int tries = 0; tries < 20; tries++) {
        struct range r = mappable_range(a);
        if (pages[r.first].kind == NOTHING) continue;
        int nr = 1;
        while (nr < r.nr && pages[r.first + nr].vma == pages[r.first].vma) nr++;
        return (struct range){r.first, nr};
    }
    return (struct range){0, 0};
}
/* The pages of a range were split from their VMAs, and perhaps merged again. */
static void split(struct actor *a, struct range r) {
    for (int i = r.first, old = -1; i < r.first + r.nr; i++) {
        if (pages[i].kind == NOTHING) continue;
        if ((int)pages[i].vma != old) a->next_vma++;
        old = pages[i].vma;
        pages[i].vma = a->next_vma;
    }
    int end = r.first + r.nr, limit = last_of(a, r.first);
    if (end < limit && pages[end].kind != NOTHING) {
        uint32_t old = pages[end].vma;
        a->next_vma++;
        for (int i = end; i < limit && pages[i].vma == old && pages[i].kind != NOTHING; i++)
            pages[i].vma = a->next_vma;
    }
}
static void unmapped(struct actor *a, struct range r) {
    split(a, r);
    memset(&pages[r.first], 0, r.nr * sizeof pages[0]);
}
static void mapped(struct actor *a, struct range r, int kind, int prot) {
    unmapped(a, r);
    a->next_vma++;
    for (int i = r.first; i < r.first + r.nr; i++)
        pages[i] = (struct page){.vma = a->next_vma, .kind = kind, .prot = prot};
}

/* Accesses that may fail. */
static __thread sigjmp_buf fault;
static __thread volatile sig_atomic_t probing;
static __thread volatile int fault_signal, fault_code;
static __thread uint8_t *volatile fault_address;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (!probing) {
        static const char what[] = "a fault of the fuzzer's own\n";
        if (write(2, what, sizeof what - 1) < 0) _exit(98);
        _exit(97);
    }
    fault_signal = signal;
    fault_code = info->si_code;
    fault_address = info->si_addr;
    siglongjmp(fault, 1);
}
static void catch_faults(void) {
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    MUST(sigaction(SIGSEGV, &act, NULL) == 0 && sigaction(SIGBUS, &act, NULL) == 0);
}
/* Runs a statement; true if it caused a fault. */
#define FAULTS(...)                     \
    ({                                  \
        volatile int faulted = 1;       \
        if (sigsetjmp(fault, 0) == 0) { \
            probing = 1;                \
            __VA_ARGS__;                \
            faulted = 0;                \
        }                               \
        probing = 0;                    \
        faulted;                        \
    })

static uint64_t hash_of(const void *from, size_t len) {
    const volatile uint8_t *p = from;
    uint64_t h = len;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) h = (h ^ *(const volatile uint64_t *)(p + i)) * 0x9fb21c651e98df25 + (h >> 29);
    for (; i < len; i++) h = (h ^ p[i]) * 0x9fb21c651e98df25 + (h >> 29);
    return h ^ h >> 32;
}

/* What a page looks like: a word, to be compared and shown. */
static void look(uint8_t *p, char out[24]) {
    uint64_t h = 0;
    if (!FAULTS(h = hash_of(p, PAGE))) {
        sprintf(out, "%04x", (unsigned)(h & 0xffff));
        return;
    }
    const char *name = fault_signal == SIGBUS ? "bus" : fault_code == SEGV_MAPERR ? "." : "-";
    int usual = fault_signal == SIGBUS ? BUS_ADRERR : fault_code == SEGV_ACCERR ? SEGV_ACCERR : SEGV_MAPERR;
    if (fault_code != usual || fault_address != p)
        sprintf(out, "%s,%d%+ld", name, fault_code, (long)(fault_address - p));
    else
        strcpy(out, name);
}
static void say_pages(struct actor *a, uint8_t *p, int nr) {
    char last[24] = "", now[24];
    int same = 0;
    for (int i = 0; i < nr; i++) {
        look(p + i * PAGE, now);
        if (i > 0 && strcmp(last, now) == 0) {
            same++;
            continue;
        }
        if (same) say(a, "*%d", same + 1);
        say(a, " %s", now);
        strcpy(last, now);
        same = 0;
    }
    if (same) say(a, "*%d", same + 1);
}
static void say_range(struct actor *a, struct range r) {
    say(a, " [");
    say_pages(a, at(r.first), r.nr);
    say(a, " ]");
}
static void say_windows(struct actor *a) {
    say(a, "  sees");
    for (int w = 0; w < WINDOWS; w++) {
        int first = windows[w].first < a->first ? a->first : windows[w].first;
        int end = windows[w].end < a->end ? windows[w].end : a->end;
        if (first < end) say_range(a, (struct range){first, end - first});
    }
    say(a, "\n");
}

/* Data of various sorts; the same for the same number. */
static void pattern(void *to, size_t len, uint64_t number) {
    volatile uint8_t *p = to;
    for (size_t i = 0; i < len; i++) switch (number % 4) {
            case 0: p[i] = number >> 8; break;
            case 1: p[i] = (i % 8) ? number >> 8 : (number >> 16) + i / 8; break;
            case 2: p[i] = mix(number + i / 8) >> (i % 8 * 8); break;
            default: p[i] = (i / 64 + number) % 7 ? number >> 12 : i;
        }
}
/* Writes data where that can be done; what cannot is said. Does not change what is known. */
static void fill(struct actor *a, struct range r) {
    uint64_t number = mix(a->random);
    int failed = 0;
    for (int i = 0; i < r.nr; i++) {
        if (FAULTS(pattern(at(r.first + i), PAGE, number + i)))
            failed++;
        else
            pages[r.first + i].written = 1;
    }
    if (failed) say(a, " %d not filled", failed);
}
#endif
