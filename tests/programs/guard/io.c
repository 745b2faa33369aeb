/* Reads and writes whose buffers, vectors and headers have been evicted. */
#include "story.h"

/* Hides a value from the compiler. */
static void *volatile nowhere = (void *)16;
static volatile int minus_one = -1;

static void files(void) {
    int fd = scratch_file();
    size_t len = 300 * 1000 + 17;
    unsigned char *a = fresh(len), *b = fresh(len);
    fill(a, len, 1);
    evict(a, len);
    CHECK(write(fd, a, len) == (ssize_t)len);
    evict(b, len);
    CHECK(pread(fd, b, len, 0) == (ssize_t)len);
    CHECK(is_filled(b, len, 1));
    memset(b, 0, len);
    evict(b, len);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, b, len) == (ssize_t)len);
    CHECK(is_filled(b, len, 1));
    CHECK(read(fd, b, len) == 0);
    evict(a, len);
    CHECK(pwrite(fd, a + 100, 5000, 12345) == 5000);
    evict(b, len);
    CHECK(pread(fd, b, 5000, 12345) == 5000);
    CHECK(memcmp(a + 100, b, 5000) == 0);
    /* Bad memory is bad memory. */
    CHECK(pread(fd, nowhere, 10, 0) == -1 && errno == EFAULT);
    munmap(b, len);
    CHECK(pread(fd, b, len, 0) == -1 && errno == EFAULT);
    close(fd);
}

static void vectors(void) {
    int fd = scratch_file();
    size_t len = 64 * PAGE;
    unsigned char *a = fresh(len), *b = fresh(len);
    fill(a, len, 2);
    struct iovec in[8], *heap = fresh(PAGE);
    size_t total = 0;
    for (int i = 0; i < 8; i++) {
        in[i].iov_base = a + (size_t)i * 8 * PAGE + 13;
        in[i].iov_len = 5 * PAGE + 100 + (size_t)i;
        total += in[i].iov_len;
    }
    evict(a, len);
    CHECK(writev(fd, in, 8) == (ssize_t)total);
    for (int i = 0; i < 8; i++) {
        heap[i] = in[i];
        heap[i].iov_base = b + ((unsigned char *)in[i].iov_base - a);
    }
    evict(b, len);
    evict(heap, PAGE);
    CHECK(preadv(fd, heap, 8, 0) == (ssize_t)total);
    for (int i = 0; i < 8; i++)
        CHECK(memcmp(in[i].iov_base, heap[i].iov_base, in[i].iov_len) == 0);
    memset(b, 0, len);
    evict(b, len);
    evict(heap, PAGE);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(readv(fd, heap, 8) == (ssize_t)total);
    for (int i = 0; i < 8; i++)
        CHECK(memcmp(in[i].iov_base, heap[i].iov_base, in[i].iov_len) == 0);
    evict(a, len);
    CHECK(pwritev2(fd, in, 8, 777, 0) == (ssize_t)total);
    evict(b, len);
    CHECK(preadv2(fd, heap, 8, 777, 0) == (ssize_t)total);
    CHECK(memcmp(in[3].iov_base, heap[3].iov_base, in[3].iov_len) == 0);
    CHECK(readv(fd, in, minus_one) == -1 && errno == EINVAL);
    CHECK(readv(fd, nowhere, 2) == -1 && errno == EFAULT);
    close(fd);
}

static void datagrams(void) {
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    unsigned char *out = fresh(64 * PAGE), *in = fresh(64 * PAGE);
    for (unsigned n = 0; n < 50; n++) {
        size_t len = 1000 + 1111 * n;
        fill(out, len, n);
        evict(out, len);
        CHECK(send(s[0], out, len, 0) == (ssize_t)len);
        evict(in, 64 * PAGE);
        if (n % 3 == 0) {
            CHECK(recv(s[1], in, 64 * PAGE, 0) == (ssize_t)len);
        } else {
            struct iovec iov[2] = {{in, 777}, {in + 777, 63 * PAGE}};
            struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
            CHECK(recvmsg(s[1], &m, 0) == (ssize_t)len);
            CHECK(m.msg_flags == 0);
        }
        CHECK(is_filled(in, len, n));
    }
    /* A message longer than the buffer says so. */
    CHECK(send(s[0], out, 5000, 0) == 5000);
    struct iovec iov = {in, 3000};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    evict(in, PAGE);
    CHECK(recvmsg(s[1], &m, 0) == 3000 && (m.msg_flags & MSG_TRUNC));
    close(s[0]);
    close(s[1]);
}

static void messages(void) {
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    /* Everything in memory that is out: header, vector, control, data. */
    unsigned char *area = fresh(16 * PAGE);
    struct msghdr *m = (void *)area;
    struct iovec *iov = (void *)(area + PAGE);
    unsigned char *control = area + 2 * PAGE, *data = area + 3 * PAGE;
    memset(m, 0, sizeof *m);
    fill(data, 5000, 9);
    iov[0] = (struct iovec){data, 5000};
    m->msg_iov = iov;
    m->msg_iovlen = 1;
    m->msg_control = control;
    m->msg_controllen = CMSG_SPACE(sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    int pass = scratch_file();
    CHECK(write(pass, "passed", 6) == 6);
    memcpy(CMSG_DATA(c), &pass, sizeof pass);
    evict(area, 16 * PAGE);
    CHECK(sendmsg(s[0], m, 0) == 5000);
    memset(control, 0, PAGE);
    memset(data, 0, 5000);
    m->msg_controllen = PAGE;
    m->msg_flags = -1;
    evict(area, 16 * PAGE);
    CHECK(recvmsg(s[1], m, 0) == 5000);
    CHECK(is_filled(data, 5000, 9));
    CHECK(m->msg_flags == 0);
    CHECK(m->msg_controllen == CMSG_SPACE(sizeof(int)));
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(m)), sizeof got);
    char text[6];
    CHECK(pread(got, text, 6, 0) == 6 && memcmp(text, "passed", 6) == 0);
    close(got);
    close(pass);

    /* Many at once. */
    struct mmsghdr *mm = (void *)(area + 8 * PAGE);
    struct iovec *iovs = (void *)(area + 9 * PAGE);
    unsigned char *buf = fresh(32 * PAGE);
    for (int i = 0; i < 20; i++) {
        memset(&mm[i], 0, sizeof mm[i]);
        iovs[i] = (struct iovec){buf + (size_t)i * PAGE + 50, 1000 + (size_t)i};
        mm[i].msg_hdr.msg_iov = &iovs[i];
        mm[i].msg_hdr.msg_iovlen = 1;
        fill(buf + (size_t)i * PAGE + 50, 1000 + (size_t)i, 100 + (unsigned)i);
    }
    int sent = 0, received = 0;
    while (sent < 10) {
        evict(area, 16 * PAGE);
        evict(buf, 32 * PAGE);
        int n = sendmmsg(s[0], mm + sent, (unsigned)(10 - sent), 0);
        CHECK(n > 0);
        sent += n;
    }
    memset(buf, 0, 32 * PAGE);
    while (received < 10) {
        evict(area, 16 * PAGE);
        evict(buf, 32 * PAGE);
        int n = recvmmsg(s[1], mm + received, (unsigned)(10 - received), 0, NULL);
        CHECK(n > 0);
        received += n;
    }
    for (int i = 0; i < 10; i++) {
        CHECK(mm[i].msg_len == 1000 + (unsigned)i);
        CHECK(is_filled(buf + (size_t)i * PAGE + 50, 1000 + (size_t)i, 100 + (unsigned)i));
    }
    close(s[0]);
    close(s[1]);
}

static void addresses(void) {
    struct sockaddr_un *a = fresh(PAGE);
    socklen_t *len = fresh(PAGE);
    a->sun_family = AF_UNIX;
    sprintf(a->sun_path, "/tmp/story-%d.sock", getpid());
    char path[108];
    strcpy(path, a->sun_path);
    int l = socket(AF_UNIX, SOCK_STREAM, 0);
    evict(a, PAGE);
    CHECK(bind(l, (void *)a, sizeof *a) == 0);
    CHECK(listen(l, 4) == 0);
    int c = socket(AF_UNIX, SOCK_STREAM, 0);
    evict(a, PAGE);
    CHECK(connect(c, (void *)a, sizeof *a) == 0);
    *len = sizeof *a;
    evict(a, PAGE);
    evict(len, PAGE);
    int s = accept(l, (void *)a, len);
    CHECK(s >= 0);
    *len = sizeof *a;
    evict(a, PAGE);
    evict(len, PAGE);
    CHECK(getsockname(s, (void *)a, len) == 0);
    CHECK(strcmp(a->sun_path, path) == 0);
    int *value = fresh(PAGE);
    *len = sizeof *value;
    evict(value, PAGE);
    evict(len, PAGE);
    CHECK(getsockopt(s, SOL_SOCKET, SO_TYPE, value, len) == 0);
    CHECK(*value == SOCK_STREAM && *len == sizeof *value);
    *value = 100000;
    evict(value, PAGE);
    CHECK(setsockopt(s, SOL_SOCKET, SO_SNDBUF, value, sizeof *value) == 0);
    close(s);
    close(c);
    close(l);
    unlink(path);
}

static void *drain(void *arg) {
    int fd = *(int *)arg;
    unsigned char *b = fresh(1 << 20);
    size_t at = 0;
    for (;;) {
        evict(b, 1 << 20);
        ssize_t n = read(fd, b, 1 << 20);
        CHECK(n >= 0);
        if (n == 0)
            return (void *)at;
        for (ssize_t i = 0; i < n; i++)
            CHECK(b[i] == pattern(at + (size_t)i, 5));
        at += (size_t)n;
    }
}

/* More than may be pinned at once. */
static void large(size_t len) {
    int fd = scratch_file();
    unsigned char *a = fresh(len);
    fill(a, len, 5);
    evict(a, len);
    CHECK(write(fd, a, len) == (ssize_t)len);
    memset(a, 0, len);
    evict(a, len);
    CHECK(pread(fd, a, len, 0) == (ssize_t)len);
    CHECK(is_filled(a, len, 5));
    /* One call, one count, also at the end of the file. */
    CHECK(pread(fd, a, len, 1000) == (ssize_t)len - 1000);
    CHECK(pread(fd, a, len, 0) == (ssize_t)len);
    struct iovec v[3] = {{a, len / 3}, {a + len / 3, len / 3}, {a + len / 3 * 2, len - len / 3 * 2}};
    evict(a, len);
    CHECK(pwritev(fd, v, 3, 0) == (ssize_t)len);
    memset(a, 0, len);
    evict(a, len);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(readv(fd, v, 3) == (ssize_t)len);
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)len);
    CHECK(is_filled(a, len, 5));
    close(fd);

    int p[2];
    CHECK(pipe(p) == 0);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, drain, &p[0]) == 0);
    evict(a, len);
    CHECK(write(p[1], a, len) == (ssize_t)len);
    evict(a, len);
    close(p[1]);
    void *got;
    CHECK(pthread_join(t, &got) == 0);
    CHECK((size_t)got == len);
    close(p[0]);
    munmap(a, len);
}

static void direct(void) {
    char name[] = "/var/tmp/storyXXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    close(fd);
    fd = open(name, O_RDWR | O_DIRECT);
    if (fd < 0) {
        CHECK(errno == EINVAL);
        unlink(name);
        return;
    }
    unlink(name);
    size_t len = 4 << 20;
    unsigned char *a = fresh(len);
    fill(a, len, 6);
    evict(a, len);
    ssize_t n = write(fd, a, len);
    if (n == -1 && errno == EINVAL)
        return;
    CHECK(n == (ssize_t)len);
    memset(a, 0, len);
    evict(a, len);
    CHECK(pread(fd, a, len, 0) == (ssize_t)len);
    CHECK(is_filled(a, len, 6));
    close(fd);
}

static void stdio(void) {
    char name[] = "/tmp/storyXXXXXX";
    int fd = mkstemp(name);
    FILE *f = fdopen(fd, "w+");
    CHECK(f);
    size_t len = 100000;
    unsigned char *a = fresh(len), *buffer = fresh(64 * PAGE);
    CHECK(setvbuf(f, (char *)buffer, _IOFBF, 64 * PAGE) == 0);
    fill(a, len, 8);
    evict(a, len);
    CHECK(fwrite(a, 1, len, f) == len);
    evict(buffer, 64 * PAGE);
    CHECK(fflush(f) == 0);
    rewind(f);
    memset(a, 0, len);
    evict(a, len);
    evict(buffer, 64 * PAGE);
    CHECK(fread(a, 1, len, f) == len);
    CHECK(is_filled(a, len, 8));
    fclose(f);
    unlink(name);
}

int main(int argc, char **argv) {
    TELL(files());
    TELL(vectors());
    TELL(datagrams());
    TELL(messages());
    TELL(addresses());
    TELL(stdio());
    TELL(direct());
    TELL(large(argc > 1 ? strtoul(argv[1], NULL, 0) << 20 : 40 << 20));
    return 0;
}
