/* Steps that change mappings. */
#ifndef MAPPING_STEPS_H
#define MAPPING_STEPS_H
#include <sys/sysinfo.h>

static void say_pages_of(struct actor *a, const char *what, struct range r) {
    say(a, "%s %d+%d", what, r.first, r.nr);
}

static int any_prot(struct actor *a) {
    return PICK(a, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ,
                PROT_NONE);
}

static void step_mmap(struct actor *a) {
    struct range r = mappable_range(a);
    int prot = any_prot(a), how = below(a, 12), fd = -1, kind = PRIVATE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    off_t offset = 0;
    if (how == 7) {
        flags = MAP_SHARED | MAP_ANONYMOUS;
        kind = SHARED;
    } else if (how == 8 || how == 9) {
        flags = how == 8 ? MAP_PRIVATE : MAP_SHARED;
        kind = how == 8 ? FILE_PRIVATE : FILE_SHARED;
        fd = chance(a, 10) ? -1 : a->memfd;
        offset = below(a, FILE_PAGES) * PAGE + (chance(a, 20) ? 1 : 0);
    } else if (how == 10 && at(r.first) >= windows[OUTSIDE].base) {
        /* A stack that grows is the kernel's, and does not grow into the arena's mapping. */
        flags |= MAP_GROWSDOWN;
        kind = GROWSDOWN;
    }
    if (chance(a, 4)) flags |= MAP_NORESERVE;
    if (chance(a, 6)) flags |= MAP_POPULATE;
    int fixed = PICK(a, MAP_FIXED, MAP_FIXED, MAP_FIXED, MAP_FIXED_NOREPLACE, 0);
    /* Hints are followed for managed memory only. */
    if (fixed == 0 && (kind != PRIVATE || r.first >= windows[OUTSIDE].first)) fixed = MAP_FIXED;
    size_t len = r.nr * PAGE - (chance(a, 8) ? below(a, PAGE) : 0);
    uint8_t *where = at(r.first);
    if (chance(a, 30)) where += 1 + below(a, PAGE - 1);
    if (fixed == 0) where = at(r.first);
    say_pages_of(a, "mmap", r);
    say(a, " kind %d prot %d flags %x fd %d offset %lx", kind, prot, flags | fixed, fd >= 0, (long)offset);
    uint8_t *p = mmap(where, len, prot, flags | fixed, fd, offset);
    if (p == MAP_FAILED) {
        say_result(a, -1);
    } else if (p == where) {
        say(a, " = there");
        mapped(a, r, kind, prot);
    } else {
        say(a, " = elsewhere%s%s", in_windows(p, len) ? " in a window" : "",
            (uintptr_t)p % PAGE ? " not aligned" : "");
        if (!in_windows(p, len)) MUST(munmap(p, len) == 0);
    }
}

static void step_munmap(struct actor *a) {
    struct range r = mappable_range(a);
    int odd = chance(a, 20);
    say_pages_of(a, "munmap", r);
    long done = munmap(at(r.first) + odd, r.nr * PAGE - (chance(a, 8) ? below(a, PAGE) : 0));
    say_result(a, done);
    if (done == 0) unmapped(a, r);
}

static void step_mprotect(struct actor *a) {
    struct range r = any_range(a);
    int prot = any_prot(a);
    /* Alone it is readable or not, by whether pages are present. */
    if (chance(a, 12) && prot & PROT_READ) prot |= PROT_EXEC;
    say_pages_of(a, "mprotect", r);
    long done = mprotect(at(r.first), r.nr * PAGE, prot);
    say(a, " prot %d", prot);
    say_result(a, done);
    split(a, r);
    /* Up to the first hole. */
    for (int i = r.first; i < r.first + r.nr && pages[i].kind != NOTHING; i++) pages[i].prot = prot;
}

/* Managed memory does not know that it is locked, so advice that locked memory refuses works. */
static int any_locked(struct range r) {
    for (int i = r.first; i < r.first + r.nr; i++)
        if (pages[i].locked) return 1;
    return 0;
}

struct advice {
    const char *name;
    int advice;
};
static const struct advice advices[] = {
    {"dontneed", MADV_DONTNEED}, {"dontneed", MADV_DONTNEED}, {"free", MADV_FREE},
    {"free", MADV_FREE}, {"willneed", MADV_WILLNEED}, {"cold", MADV_COLD},
    {"pageout", MADV_PAGEOUT}, {"pageout", MADV_PAGEOUT}, {"populate read", MADV_POPULATE_READ},
    {"populate write", MADV_POPULATE_WRITE}, {"dontfork", MADV_DONTFORK},
    {"dofork", MADV_DOFORK}, {"wipeonfork", MADV_WIPEONFORK}, {"keeponfork", MADV_KEEPONFORK},
    {"hugepage", MADV_HUGEPAGE}, {"nohugepage", MADV_NOHUGEPAGE}, {"sequential", MADV_SEQUENTIAL},
    {"random", MADV_RANDOM}, {"normal", MADV_NORMAL}, {"mergeable", MADV_MERGEABLE},
    {"unmergeable", MADV_UNMERGEABLE}, {"dontdump", MADV_DONTDUMP}, {"dodump", MADV_DODUMP},
    {"remove", MADV_REMOVE}, {"none such", 99},
};

static void step_madvise(struct actor *a) {
    struct range r = any_range(a);
    const struct advice *v = &advices[below(a, sizeof advices / sizeof advices[0])];
    size_t len = r.nr * PAGE - (chance(a, 8) ? below(a, PAGE) : 0);
    if (any_locked(r)) return;
    uint8_t *where = at(r.first) + (chance(a, 30) ? 8 : 0);
    if (chance(a, 40)) len = 0;
    say_pages_of(a, "madvise", r);
    say(a, " %s", v->name);
    long done = madvise(where, len, v->advice);
    say_result(a, done);
    switch (v->advice) {
        case MADV_FREE:
            /* Whether the contents are still there is up to the kernel: they are replaced. */
            for (int i = r.first; i < r.first + r.nr; i++)
                if (pages[i].kind == PRIVATE || pages[i].kind == GROWSDOWN) {
                    if (FAULTS(pattern(at(i), PAGE, i))) madvise(at(i), PAGE, MADV_DONTNEED);
                }
            break;
        case MADV_DONTNEED:
            for (int i = r.first; i < r.first + r.nr; i++) pages[i].written = 0;
            break;
        case MADV_DONTFORK:
        case MADV_DOFORK:
        case MADV_WIPEONFORK:
        case MADV_KEEPONFORK:
        case MADV_DONTDUMP:
        case MADV_DODUMP:
        case MADV_HUGEPAGE:
        case MADV_NOHUGEPAGE:
        case MADV_SEQUENTIAL:
        case MADV_RANDOM:
        case MADV_NORMAL:
        case MADV_MERGEABLE:
        case MADV_UNMERGEABLE:
            split(a, r);
    }
}

static void step_mlock(struct actor *a) {
    struct range r = any_range(a);
    if (r.nr > 8) r.nr = 8;
    int lock = chance(a, 2);
    size_t off = below(a, PAGE);
    say_pages_of(a, lock ? "mlock" : "munlock", r);
    uint8_t *where = at(r.first);
    long done = lock ? mlock(where + off, r.nr * PAGE - off) : munlock(where + off, r.nr * PAGE - off);
    say_result(a, done);
    split(a, r);
    for (int i = r.first; i < r.first + r.nr; i++) pages[i].locked = lock && pages[i].kind != NOTHING;
}

static void step_msync(struct actor *a) {
    struct range r = any_range(a);
    int flags = PICK(a, MS_ASYNC, MS_SYNC, MS_ASYNC | MS_SYNC, MS_INVALIDATE);
    if (any_locked(r)) flags &= ~MS_INVALIDATE;
    say_pages_of(a, "msync", r);
    say(a, " flags %d", flags);
    say_result(a, msync(at(r.first) + (chance(a, 20) ? 1 : 0), r.nr * PAGE, flags));
}

static void step_mincore(struct actor *a) {
    struct range r = any_range(a);
    unsigned char vector[MANAGED_PAGES];
    memset(vector, 9, sizeof vector);
    say_pages_of(a, "mincore", r);
    long done = mincore(at(r.first) + (chance(a, 20) ? 1 : 0), r.nr * PAGE, vector);
    say_result(a, done);
    /* Pages that were read alone, and neighbours of what was touched, are resident or not; so is
     * everything on a machine with swap. */
    struct sysinfo machine;
    MUST(sysinfo(&machine) == 0);
    for (int i = 0; done == 0 && machine.totalswap == 0 && i < r.nr; i++)
        if (pages[r.first + i].written && pages[r.first + i].kind == PRIVATE)
            say(a, " %d", vector[i]);
}

/* Where a mapping is after mremap: its state goes along. */
static void moved(struct actor *a, struct range from, struct range to, int stays) {
    struct page kept[PAGES];
    int nr = from.nr < to.nr ? from.nr : to.nr;
    memcpy(kept, &pages[from.first], nr * sizeof kept[0]);
    struct page last = kept[0];
    last.written = 0;
    int foreign = last.foreign || from.first >= MANAGED_PAGES;
    if (!stays) unmapped(a, from);
    else split(a, from);
    for (int i = from.first; i < from.first + from.nr; i++) pages[i].written = 0;
    unmapped(a, to);
    a->next_vma++;
    for (int i = 0; i < to.nr; i++) {
        pages[to.first + i] = i < nr ? kept[i] : last;
        pages[to.first + i].vma = a->next_vma;
        pages[to.first + i].foreign = foreign;
    }
}

static void step_mremap(struct actor *a) {
    struct range from = one_vma(a);
    /* Of several VMAs, which move together since Linux 6.17 alone, nothing is asked but to shrink;
     * what is not mapped cannot be moved. */
    if (from.nr == 0 || chance(a, 12)) {
        from = mappable_range(a);
        if (pages[from.first].kind != NOTHING) return;
    }
    struct page was = pages[from.first];
    struct range to = mappable_range(a);
    to.nr = chance(a, 2) ? from.nr : 1 + (int)below(a, 2 * from.nr);
    int flags = PICK(a, 0, MREMAP_MAYMOVE, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED,
                     MREMAP_MAYMOVE | MREMAP_FIXED, MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
                     MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, MREMAP_FIXED);
    if (flags & MREMAP_DONTUNMAP) to.nr = from.nr;
    /* In place it may not grow beyond what belongs to us. */
    if (!(flags & MREMAP_FIXED) && from.first + to.nr > last_of(a, from.first)) to.nr = from.nr;
    if (to.first + to.nr > last_of(a, to.first)) to.first = last_of(a, to.first) - to.nr;
    if (to.first < a->first || window_end(to.first) != window_end(to.first + to.nr - 1)) return;
    /* What grows downwards, or is not managed, does not grow within the arena's mapping. */
    if (was.kind == GROWSDOWN && to.first < MANAGED_PAGES) return;
    if (was.kind == GROWSDOWN && (to.first >= windows[EDGE].first || flags == MREMAP_MAYMOVE)) return;
    int managed = was.kind == PRIVATE && !was.foreign;
    if (!managed && to.nr > from.nr && !(flags & MREMAP_FIXED)) return;
    /* What lies across the edge is two mappings under uzswap. */
    if (across_edge(from) || across_edge(to)) return;
    if (across_edge((struct range){from.first, to.nr})) return;
    say_pages_of(a, "mremap", from);
    say(a, " to %d+%d flags %d", to.first, to.nr, flags);
    /* Without MREMAP_FIXED it is a hint for MREMAP_DONTUNMAP: followed for managed memory only. */
    int followed = was.kind == PRIVATE && !was.foreign && from.first < MANAGED_PAGES && to.first < MANAGED_PAGES;
    uint8_t *wanted = flags & MREMAP_FIXED || followed ? at(to.first) : NULL;
    uint8_t *p = mremap(at(from.first), from.nr * PAGE, to.nr * PAGE, flags, wanted);
    if (p == MAP_FAILED) {
        say_result(a, -1);
        return;
    }
    struct range in_place = {from.first, to.nr};
    if (p == at(to.first)) {
        moved(a, from, to, flags & MREMAP_DONTUNMAP);
        say(a, " moved");
        say_range(a, to);
    } else if (p == at(from.first)) {
        if (to.nr < from.nr)
            unmapped(a, (struct range){from.first + to.nr, from.nr - to.nr});
        else
            for (int i = from.nr; i < to.nr; i++) {
                pages[from.first + i] = pages[from.first];
                pages[from.first + i].written = 0;
            }
        say(a, " in place");
        say_range(a, in_place);
    } else {
        /* To a place of the kernel's choice, and back into a window. */
        say(a, " elsewhere%s%s", in_windows(p, to.nr * PAGE) ? " in a window" : "",
            (uintptr_t)p % PAGE ? " not aligned" : "");
        say_pages(a, p, to.nr);
        /* The end of a file may lie before it. */
        volatile uint8_t *bytes = p;
        if (was.prot & PROT_WRITE && FAULTS(bytes[0] = 7; bytes[to.nr * PAGE - 1] = 8)) say(a, " cut");
        MUST(mremap(p, to.nr * PAGE, to.nr * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(to.first)) ==
             at(to.first));
        moved(a, from, to, flags & MREMAP_DONTUNMAP);
        say_range(a, to);
    }
}

static void step_brk(struct actor *a) {
    struct window *w = &windows[BREAK];
    int nr = below(a, BREAK_PAGES + 1);
    int end = w->first + nr;
    say(a, "brk %d", nr);
    say_result(a, brk(w->base + nr * PAGE));
    for (int i = w->end; i < end; i++)
        pages[i] = (struct page){.kind = PRIVATE, .prot = PROT_READ | PROT_WRITE};
    if (end < w->end) unmapped(a, (struct range){end, w->end - end});
    w->end = end;
}

/* Accesses by the program itself. */
static void step_touch(struct actor *a) {
    struct range r = any_range(a);
    if (chance(a, 3)) {
        say_pages_of(a, "fill", r);
        fill(a, r);
        return;
    }
    int writes = chance(a, 2);
    size_t off = chance(a, 3) ? 0 : below(a, PAGE);
    say_pages_of(a, writes ? "poke" : "peek", r);
    for (int i = r.first; i < r.first + r.nr; i++) {
        volatile uint8_t *p = at(i) + off;
        uint8_t byte = 0;
        int failed = writes ? FAULTS(*p = i) : FAULTS(byte = *p);
        if (failed)
            say(a, " %d,%d%s", fault_signal, fault_code, fault_address == p ? "" : " elsewhere");
        else if (writes)
            pages[i].written = 1;
        else
            say(a, " %d", byte);
    }
}
#endif
