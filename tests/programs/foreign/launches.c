/* Executes the program at its first argument in every way, with the second, in the directory of
 * that program. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef GO
/* Go's mark, by which its programs are told. */
asm(".pushsection .note.go.buildid, \"a\", @note; .balign 4; .long 4, 4, 4;"
    ".ascii \"Go\\0\\0none\"; .popsection");
#endif

static const char *ways[] = {
    "execve", "relative", "execveat", "execveat by number", "fexecve", "by an O_PATH number",
    "/proc/self/fd", "script", "script of a script", "shell", "no environment", "other libraries",
    "posix_spawn", "vfork",
};
#define WAYS (int)(sizeof ways / sizeof *ways)

static char path[4096], name[4096], one[4200], two[4200];

/* In a child; returns only if it failed. */
static void execute(int way, char **argv) {
    char link[64];
    char *none[] = {NULL}, *others[200] = {NULL};
    switch (way) {
    case 0: execve(path, argv, environ); break;
    case 1: execve(name, argv, environ); break;
    case 2: syscall(SYS_execveat, open(".", O_RDONLY), name, argv, environ, 0); break;
    case 3: syscall(SYS_execveat, open(path, O_RDONLY), "", argv, environ, AT_EMPTY_PATH); break;
    case 4: fexecve(open(path, O_RDONLY), argv, environ); break;
    case 5: syscall(SYS_execveat, open(path, O_PATH), "", argv, environ, AT_EMPTY_PATH); break;
    case 6:
        snprintf(link, sizeof link, "/proc/self/fd/%d", open(path, O_RDONLY));
        execve(link, argv, environ);
        break;
    case 7: execv(one, argv); break;
    case 8: execv(two, argv); break;
    case 9: {
        char *shell[] = {"sh", "-c", "\"$0\" $1; exit $?", path, argv[1], NULL};
        execv("/bin/sh", shell);
        break;
    }
    case 10: execve(path, argv, none); break;
    case 11: {
        int kept = 0;
        for (char **entry = environ; *entry && kept < 198; entry++) {
            others[kept] = *entry;
            if (!strncmp(*entry, "LD_PRELOAD=", 11))
                asprintf(&others[kept], "%s %s", *entry, "libm.so.6");
            kept++;
        }
        execve(path, argv, others);
        break;
    }
    }
}

static void script(const char *at, const char *interpreter, const char *argument) {
    int fd = open(at, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (fd < 0 || dprintf(fd, "#! %s %s\n", interpreter, argument) < 0 || close(fd)) perror(at);
}

int main(int argc, char **argv) {
    if (argc < 2 || !realpath(argv[1], path)) return 2;
    strcpy(name, basename(strdup(path)));
    snprintf(one, sizeof one, "%s.one", path);
    snprintf(two, sizeof two, "%s.two", path);
    script(one, path, argc > 2 ? argv[2] : "");
    script(two, one, "");
    if (chdir(dirname(strdup(path)))) return 2;
    for (int way = 0; way < WAYS; way++) {
        pid_t child = -1;
        int status = 0;
        if (!strcmp(ways[way], "posix_spawn")) {
            if (posix_spawn(&child, path, NULL, NULL, argv + 1, environ)) return 3;
        } else if (!strcmp(ways[way], "vfork")) {
            if ((child = vfork()) == 0) {
                execve(path, argv + 1, environ);
                _exit(3);
            }
        } else if ((child = fork()) == 0) {
            execute(way, argv + 1);
            _exit(3);
        }
        if (waitpid(child, &status, 0) != child) return 4;
        printf("%s: %d\n", ways[way], status);
        fflush(stdout);
    }
    return 0;
}
