/* A module that asks the loader for the C library's functions: by RTLD_NEXT, or with -DBY_HANDLE in
 * the library itself, or with -DBY_OTHER_NAME under their other names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#ifdef BY_OTHER_NAME
void *__libc_malloc(size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *make(size_t len) { return __libc_malloc(len); }
void *lengthen(void *p, size_t len) { return __libc_realloc(p, len); }
void dispose(void *p) { __libc_free(p); }
size_t room(void *p) { return malloc_usable_size(p); }
#else
static void *(*real_malloc)(size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static size_t (*real_room)(void *);

__attribute__((constructor)) static void look_up(void) {
#ifdef BY_HANDLE
    void *from = dlopen("libc.so.6", RTLD_NOW);
#else
    void *from = RTLD_NEXT;
#endif
    real_malloc = dlsym(from, "malloc");
    real_realloc = dlsym(from, "realloc");
    real_free = dlsym(from, "free");
    real_room = dlsym(from, "malloc_usable_size");
    if (dlsym(from, "no such function")) abort();
    if (!dlerror()) abort();
    if (dlsym(from, "getpid") == NULL || dlerror()) abort();
}
void *make(size_t len) { return real_malloc(len); }
void *lengthen(void *p, size_t len) { return real_realloc(p, len); }
void dispose(void *p) { real_free(p); }
size_t room(void *p) { return real_room(p); }
#endif
