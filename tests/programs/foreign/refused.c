// Executes a program that the kernel refuses, as it is open for writing, and goes on: the kernel
// must find its memory all the same. argv: a program, MiB to fill.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t len = strtoul(argv[2], NULL, 10) << 20;
    char *memory = malloc(len);
    memset(memory, 'x', len);
    int writing = open(argv[1], O_WRONLY | O_APPEND), zero = open("/dev/zero", O_RDONLY);
    if (writing < 0 || zero < 0) return 3;
    for (int n = 0; n < 3; n++) {
        execve(argv[1], argv + 1, environ);
        printf("%s\n", strerror(errno));
        for (size_t at = 0; at < len; at += 64 << 10) {
            if (read(zero, memory + at, 100) != 100) {
                printf("%zu: %s\n", at, strerror(errno));
                return 1;
            }
        }
    }
    return 0;
}
