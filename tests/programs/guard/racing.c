/* Reads and writes while one thread keeps evicting the same memory, and another bringing it back. */
#include "story.h"

#define LEN (32 * PAGE)

static volatile int stop;
static unsigned char *memory, *copy;

static void *putter(void *arg) {
    unsigned n = 0;
    while (!stop) {
        size_t at = (n * 5 % 32) * PAGE;
        evict(memory + at, n % 3 ? PAGE : LEN - at);
        n++;
    }
    return arg;
}

static void *toucher(void *arg) {
    unsigned long sum = 0;
    for (unsigned n = 0; !stop; n++) sum += *(volatile unsigned char *)(memory + n * 7 % 32 * PAGE);
    return sum ? arg : NULL;
}

static size_t place(unsigned i, size_t *len) {
    size_t at = i * 977u % (16 * PAGE);
    *len = i * 3571u % (15 * PAGE) + 1;
    return at;
}

int main(void) {
    memory = fresh(LEN);
    copy = malloc(LEN);
    unsigned char *want = malloc(LEN);
    CHECK(copy && want);
    int file = scratch_file(), pipes[2], stream[2], datagram[2];
    CHECK(pipe(pipes) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram) == 0);
    fill(memory, LEN, 1);
    pthread_t t[2];
    CHECK(pthread_create(&t[0], NULL, putter, NULL) == 0);
    CHECK(pthread_create(&t[1], NULL, toucher, NULL) == 0);
    for (unsigned i = 0; i < 1500; i++) {
        size_t len, at = place(i, &len);
        unsigned char *m = memory + at;
        /* Out: what is written is what is there. */
        memcpy(copy, m, len);
        CHECK(pwrite(file, m, len, 0) == (ssize_t)len);
        CHECK(pread(file, want, len, 0) == (ssize_t)len && memcmp(want, copy, len) == 0);
        struct iovec v[3] = {{m, len / 3}, {m + len / 3, len / 3}, {m + len / 3 * 2, len - len / 3 * 2}};
        CHECK(lseek(file, 0, SEEK_SET) == 0);
        CHECK(writev(file, v, 3) == (ssize_t)len);
        CHECK(pread(file, want, len, 0) == (ssize_t)len && memcmp(want, copy, len) == 0);
        /* In: what arrives is what was sent. */
        fill(want, len, i);
        CHECK(pwrite(file, want, len, 0) == (ssize_t)len);
        CHECK(pread(file, m, len, 0) == (ssize_t)len && memcmp(want, m, len) == 0);
        memset(m, 0, len);
        CHECK(lseek(file, 0, SEEK_SET) == 0);
        CHECK(readv(file, v, 3) == (ssize_t)len && memcmp(want, m, len) == 0);
        memset(m, 0, len);
        CHECK(lseek(file, 0, SEEK_SET) == 0);
        CHECK(read(file, m, len) == (ssize_t)len && memcmp(want, m, len) == 0);
        size_t part = len < 60000 ? len : 60000, got = 0;
        memset(m, 0, part);
        CHECK(write(pipes[1], want, part) == (ssize_t)part);
        while (got < part) {
            ssize_t n = read(pipes[0], m + got, part - got);
            CHECK(n > 0);
            got += (size_t)n;
        }
        CHECK(memcmp(want, m, part) == 0);
        /* Nobody interrupts it: what blocks takes all. */
        CHECK(write(pipes[1], m, part) == (ssize_t)part);
        for (got = 0; got < part; got += (size_t)read(pipes[0], copy + got, part - got)) {}
        CHECK(memcmp(want, copy, part) == 0);
        CHECK(send(stream[0], m, part, 0) == (ssize_t)part);
        for (got = 0; got < part; got += (size_t)recv(stream[1], copy + got, part - got, 0)) {}
        CHECK(memcmp(want, copy, part) == 0);
        memset(m, 0, part);
        CHECK(send(stream[0], want, part, 0) == (ssize_t)part);
        for (got = 0; got < part;) {
            ssize_t n = recv(stream[1], m + got, part - got, 0);
            CHECK(n > 0);
            got += (size_t)n;
        }
        CHECK(memcmp(want, m, part) == 0);
        CHECK(send(datagram[0], m, part, 0) == (ssize_t)part);
        memset(m, 0, part);
        CHECK(recv(datagram[1], m, LEN - at, 0) == (ssize_t)part);
        CHECK(memcmp(want, m, part) == 0);
        CHECK(send(datagram[0], m, part, 0) == (ssize_t)part);
        CHECK(recv(datagram[1], copy, LEN, 0) == (ssize_t)part);
        CHECK(memcmp(want, copy, part) == 0);
    }
    stop = 1;
    for (int n = 0; n < 2; n++) CHECK(pthread_join(t[n], NULL) == 0);
    return 0;
}
