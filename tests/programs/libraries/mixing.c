/* Loads modules that allocate in ways of their own, before and after it has used what it frees by
 * them, and exchanges memory with each. The modules' paths are the arguments. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 200

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Memory that the C library allocates for its caller. */
static char *given(int kind) {
    char *text = NULL;
    size_t len = 0;
    FILE *file;
    switch (kind) {
    case 0: return strdup("a copy");
    case 1: return strndup("a long copy", 6);
    case 2: return realpath("/", NULL);
    case 3: return asprintf(&text, "%d of them", kind) < 0 ? NULL : text;
    case 4:
        file = fmemopen("a line\n", 7, "r");
        if (getline(&text, &len, file) != 7) die("getline");
        fclose(file);
        return text;
    case 5:
        file = open_memstream(&text, &len);
        fputs("written", file);
        fclose(file);
        return text;
    case 6: return malloc(100000);
    case 7: return calloc(30, 30);
    case 8: return aligned_alloc(256, 4096);
    case 9: return memalign(64, 100);
    case 10: return posix_memalign((void **)&text, 4096, 10) ? NULL : text;
    case 11: return valloc(10);
    default: return pvalloc(10);
    }
}
#define KINDS 13

static void exchange(void *module) {
    void *(*make)(size_t) = dlsym(module, "make");
    void *(*lengthen)(void *, size_t) = dlsym(module, "lengthen");
    size_t (*room)(void *) = dlsym(module, "room");
    void (*dispose)(void *) = dlsym(module, "dispose");
    void (*own)(void) = dlsym(module, "own");
    for (int i = 0; i < ROUNDS; i++) {
        if (own) own();
        if (!make) continue;
        for (int kind = 0; kind < KINDS; kind++) {
            char *p = given(kind);
            if (!p || room(p) < 5) die("no room");
            memcpy(p, "1234", 5);
            p = lengthen(p, 5000 + i);
            if (!p || strcmp(p, "1234")) die("lost on the way");
            memset(p, kind, 5000 + i);
            dispose(p);
        }
        char *p = make(70 + i);
        if (malloc_usable_size(p) < 70) die("no room in its block");
        strcpy(p, "made there");
        p = realloc(p, 3000);
        if (strcmp(p, "made there")) die("lost on the way back");
        free(p);
    }
}

int main(int argc, char **argv) {
    int late = argc > 1 && !strcmp(argv[1], "late");
    char *kept[KINDS];
    if (late)
        for (int kind = 0; kind < KINDS; kind++) kept[kind] = given(kind);
    for (int i = 1 + late; i < argc; i++) {
        int flags = argv[i][0] == '+' ? RTLD_DEEPBIND : 0;
        void *module = dlopen(argv[i] + !!flags, RTLD_NOW | RTLD_LOCAL | flags);
        if (!module) die(dlerror());
        if (late) {
            void (*dispose)(void *) = dlsym(module, "dispose");
            for (int kind = 0; dispose && kind < KINDS; kind++) {
                dispose(kept[kind]);
                kept[kind] = given(kind);
            }
        }
        exchange(module);
        printf("%d: right\n", i - late);
    }
    return 0;
}
