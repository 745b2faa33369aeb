/* A debugger starts programs: a vfork child asks to be traced and executes one, after a name that
 * does not exist. */
#include "story.h"
#include <sys/ptrace.h>

static pid_t start(void) {
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execl("/nowhere/sh", "sh", NULL);
        execl("/bin/sh", "sh", "-c", "exit 7", NULL);
        _exit(1);
    }
    return child;
}

int main(void) {
    for (int round = 0; round < 5; round++) {
        pid_t child = start();
        int status, stops = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
        /* Under uzswap the program has signals of its own. */
        while (WIFSTOPPED(status) && stops++ < 100000) {
            long sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
            CHECK(ptrace(PTRACE_CONT, child, NULL, sig) == 0);
            CHECK(waitpid(child, &status, 0) == child);
        }
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    /* Its own child is none that is to be traced. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(execl("/bin/true", "true", NULL));
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
