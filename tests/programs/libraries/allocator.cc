// An allocator that a program is linked with: all of malloc, new and delete. It ends the program
// when it is given a block that is not its own.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unistd.h>

static char pool[16 << 20] __attribute__((aligned(4096)));
static std::size_t used;

static bool is_own(void *p) {
    return static_cast<char *>(p) >= pool && static_cast<char *>(p) < pool + sizeof pool;
}
static void *take(std::size_t len, std::size_t align) {
    std::size_t at = __atomic_fetch_add(&used, len + align + 64, __ATOMIC_RELAXED);
    if (at + len + align + 64 > sizeof pool) return nullptr;
    auto p = reinterpret_cast<std::uintptr_t>(pool) + at + 16;
    p = (p + align - 1) & ~(align - 1);
    std::memcpy(reinterpret_cast<void *>(p - 8), &len, 8);
    return reinterpret_cast<void *>(p);
}
static std::size_t room(void *p) {
    static const char told[] = "given what this allocator has not made\n";
    std::size_t len = 0;
    if (!is_own(p)) {
        if (write(2, told, sizeof told - 1) < 0) _exit(2);
        _exit(1);
    }
    std::memcpy(&len, static_cast<char *>(p) - 8, 8);
    return len;
}

extern "C" {
void *malloc(std::size_t len) { return take(len, 16); }
void *calloc(std::size_t nr, std::size_t len) { return take(nr * len, 16); }
void free(void *p) { if (p) room(p); }
void *realloc(void *p, std::size_t len) {
    void *q = take(len, 16);
    if (p && q) std::memcpy(q, p, room(p) < len ? room(p) : len);
    return q;
}
void *memalign(std::size_t align, std::size_t len) { return take(len, align); }
void *aligned_alloc(std::size_t align, std::size_t len) { return take(len, align); }
int posix_memalign(void **out, std::size_t align, std::size_t len) {
    return (*out = take(len, align)) ? 0 : ENOMEM;
}
std::size_t malloc_usable_size(void *p) { return p ? room(p) : 0; }
}
void *operator new(std::size_t len) { return take(len, 16); }
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, std::size_t) noexcept { free(p); }
