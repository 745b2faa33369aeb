// A module that replaces some forms of new and delete, and calls some of them past the loader: its
// own blocks must come back to it.
#include <cstdio>
#include <cstdlib>
#include <new>

static char pool[1 << 20] __attribute__((aligned(64)));
static std::size_t used;

static void *take(std::size_t len) {
    if (used + len > sizeof pool) used = 0;
    void *p = pool + used;
    used += (len + 63) & ~std::size_t(63);
    return p;
}
static void give(void *p) {
    if (p && (p < pool || p >= pool + sizeof pool)) {
        std::fprintf(stderr, "freed what this module has not allocated\n");
        std::abort();
    }
}

void *operator new(std::size_t len) { return take(len); }
void operator delete(void *p) noexcept { give(p); }
void operator delete(void *p, std::size_t) noexcept { give(p); }

// As where the linker has bound a call already.
#define SAME(name) __attribute__((visibility("hidden"), alias(name)))
extern "C" SAME("_Znwm") __attribute__((malloc, alloc_size(1))) void *hidden_new(std::size_t len);
extern "C" SAME("_ZdlPv") void hidden_delete(void *p) noexcept;

extern "C" void own() {
    int *a = static_cast<int *>(hidden_new(100));
    ::operator delete(a);
    hidden_delete(::operator new(100));
    delete new int(5);
}
