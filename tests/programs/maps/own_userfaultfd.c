/* A program that serves page faults itself. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define N (32 * PAGE)

static int fd;
static uint8_t *area, *source;

static void *serve(void *arg) {
    (void)arg;
    for (int served = 0; served < 16; served++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        CHECK(poll(&p, 1, 10000) == 1);
        struct uffd_msg msg;
        CHECK(read(fd, &msg, sizeof msg) == sizeof msg && msg.event == UFFD_EVENT_PAGEFAULT);
        uint64_t at = msg.arg.pagefault.address & ~(PAGE - 1);
        CHECK(at >= (uintptr_t)area && at < (uintptr_t)area + N);
        memset(source, 'a' + (at - (uintptr_t)area) / PAGE, PAGE);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)source, .len = PAGE};
        CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0);
    }
    return NULL;
}

int main(void) {
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0) {
        puts("ok (no userfaultfd here)");
        return 0;
    }
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
    area = rw(N), source = rw(PAGE);
    /* Half of it is used before. */
    stamp(area, N / 2, 3);
    struct uffdio_register reg = {.range = {(uintptr_t)area, N}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(fd, UFFDIO_REGISTER, &reg) == 0);
    STAMPED(area, N / 2, 3);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, serve, NULL) == 0);
    for (size_t i = N / 2 / PAGE; i < N / PAGE; i++) CHECK(area[i * PAGE + 5] == 'a' + (int)i);
    CHECK(pthread_join(t, NULL) == 0);
    STAMPED(area, N / 2, 3);
    CHECK(ioctl(fd, UFFDIO_UNREGISTER, &reg.range) == 0);
    close(fd);
    CHECK(munmap(area, N) == 0);
    uint8_t *again = rw(N);
    CHECK(zero(again, N));
    puts("ok");
    return 0;
}
