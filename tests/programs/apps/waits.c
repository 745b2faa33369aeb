// waits CALL MILLISECONDS
//
// What: fills 32 MiB, says "ready", waits by CALL (sleep, absolute, poll, ppoll, select, pselect,
// epoll, epoll_pwait, epoll_pwait2, semaphore, semtimedop, sigtimedwait; on a socket with a timeout
// recv, recvmsg, read, send, write, accept; by syscall(2) syscall_sleep, syscall_futex,
// syscall_epoll), checks that it waited that long and saw no signal, and then checks its memory.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef __GLIBC__
// musl 1.2.3 has no function for it.
#define epoll_pwait2(...) syscall(SYS_epoll_pwait2, __VA_ARGS__, 0)
#endif

enum { PAGES = 8192 };

static uint64_t *memory;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

// Waits on a socket that nobody else has until its timeout has passed.
static int waits_on_socket(const char *call, struct timeval timeout) {
    static char buffer[4096];
    int pair[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || listen(listener, 1) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return -1;
    int is_accept = !strcmp(call, "accept"), fd = is_accept ? listener : pair[0];
    while (send(fd, buffer, sizeof buffer, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout))
        return -1;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    // The heap is managed, the buffer is not.
    ssize_t ret = is_accept                 ? accept(fd, NULL, NULL)
                  : !strcmp(call, "recv")   ? recv(fd, memory, 4096, 0)
                  : !strcmp(call, "recvmsg") ? recvmsg(fd, &header, 0)
                  : !strcmp(call, "read")   ? read(fd, buffer, sizeof buffer)
                  : !strcmp(call, "send")   ? send(fd, buffer, sizeof buffer, MSG_NOSIGNAL)
                                            : write(fd, memory, 4096);
    return ret == -1 && errno == EAGAIN ? 0 : -1;
}

static int waits(const char *call, long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    struct timeval v = {ms / 1000, ms % 1000 * 1000};
    if (!strcmp(call, "sleep"))
        return nanosleep(&t, NULL);
    if (!strcmp(call, "absolute")) {
        struct timespec end;
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += t.tv_sec + (end.tv_nsec + t.tv_nsec) / 1000000000;
        end.tv_nsec = (end.tv_nsec + t.tv_nsec) % 1000000000;
        errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
        return errno ? -1 : 0;
    }
    if (!strcmp(call, "poll"))
        return poll(NULL, 0, ms);
    if (!strcmp(call, "ppoll"))
        return ppoll(NULL, 0, &t, NULL);
    if (!strcmp(call, "select"))
        return select(0, NULL, NULL, NULL, &v);
    if (!strcmp(call, "pselect"))
        return pselect(0, NULL, NULL, NULL, &t, NULL);
    if (strstr("recv recvmsg read send write accept", call))
        return waits_on_socket(call, v);
    if (!strcmp(call, "syscall_sleep"))
        return syscall(SYS_nanosleep, &t, NULL);
    if (!strcmp(call, "syscall_futex")) {
        static int word;
        const long wait = 128; // FUTEX_WAIT_PRIVATE
        return syscall(SYS_futex, &word, wait, 0L, &t) == -1 && errno == ETIMEDOUT ? 0 : -1;
    }
    int queue = epoll_create1(0);
    struct epoll_event *events = (struct epoll_event *)memory;
    if (!strcmp(call, "epoll"))
        return epoll_wait(queue, events, 1, ms);
    if (!strcmp(call, "syscall_epoll"))
        return syscall(SYS_epoll_wait, (long)queue, events, 1L, ms);
    if (!strcmp(call, "epoll_pwait"))
        return epoll_pwait(queue, events, 1, ms, NULL);
    if (!strcmp(call, "epoll_pwait2"))
        return epoll_pwait2(queue, events, 1, &t, NULL);
    if (!strcmp(call, "semtimedop")) {
        int set = semget(IPC_PRIVATE, 1, 0600);
        struct sembuf take = {0, -1, 0};
        int ret = semtimedop(set, &take, 1, &t);
        int error = errno;
        semctl(set, 0, IPC_RMID);
        errno = error;
        return ret == -1 && errno == EAGAIN ? 0 : -1;
    }
    if (!strcmp(call, "sigtimedwait")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, NULL);
        int ret = sigtimedwait(&set, NULL, &t);
        return ret == -1 && errno == EAGAIN ? 0 : -1;
    }
    if (!strcmp(call, "semaphore")) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += t.tv_sec + (end.tv_nsec + t.tv_nsec) / 1000000000;
        end.tv_nsec = (end.tv_nsec + t.tv_nsec) % 1000000000;
        sem_t semaphore;
        sem_init(&semaphore, 0, 0);
        int ret = sem_timedwait(&semaphore, &end);
        return ret == -1 && errno == ETIMEDOUT ? 0 : -1;
    }
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    memory = malloc(PAGES * 4096L);
    for (uint64_t page = 0; page < PAGES; page++)
        for (unsigned i = 0; i < 512; i++)
            memory[page * 512 + i] = page * 31 + i % 8;
    long ms = atol(argv[2]);
    puts("ready");
    fflush(stdout);
    double begin = now();
    int ret = waits(argv[1], ms);
    int error = errno;
    double took = now() - begin;
    if (ret)
        printf("WRONG %s: %d, %s\n", argv[1], ret, strerror(error));
    else if (took < ms || took > ms + 1000)
        printf("WRONG %s: %f ms\n", argv[1], took);
    for (uint64_t page = 0; page < PAGES; page++)
        for (unsigned i = 0; i < 512; i++)
            if (memory[page * 512 + i] != page * 31 + i % 8) {
                printf("WRONG page %lu\n", (unsigned long)page);
                return 1;
            }
    puts("done");
    return 0;
}
