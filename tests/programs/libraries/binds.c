/* A program and a library, loaded by bare name through the program's run path, free each other's
 * memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    void *library = dlopen("bound", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    char *(*make)(const char *) = dlsym(library, "make");
    char *(*lengthen)(char *, size_t) = dlsym(library, "lengthen");
    void (*dispose)(char *) = dlsym(library, "dispose");
    for (int i = 0; i < 10000; i++) {
        char *own = strdup("made by the program");
        own = lengthen(own, 100 + i);
        strcat(own, ", lengthened by the library");
        if (i == 0) puts(own);
        dispose(own);
        char *its = make("made by the library");
        its = realloc(its, 50);
        if (i == 0) puts(its);
        free(its);
    }
    return 0;
}
