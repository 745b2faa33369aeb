/* A library loaded so that it resolves its symbols in its own dependencies first. */
#include <stdlib.h>
#include <string.h>

char *make(const char *text) { return strdup(text); }
char *lengthen(char *text, size_t len) { return realloc(text, len); }
void dispose(char *text) { free(text); }
