/* What random use of the address space found: calls whose errors and effects differed. */
#include "check.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define OPEN (PROT_READ | PROT_WRITE)
#define LEN (32 * PAGE)

static int file_of(size_t pages) {
    int fd = memfd_create("file", 0);
    CHECK(fd >= 0 && ftruncate(fd, pages * PAGE) == 0);
    return fd;
}

/* After a fork the kernel can write beside a mapping of the program's own. */
static void calls_after_a_fork_beside_a_file(void) {
    for (int before = 0; before < 2; before++) {
        int fd = file_of(1);
        uint8_t *p = rw(LEN);
        stamp(p, LEN, 3);
        if (before) CHECK(mmap(p + 3 * PAGE, PAGE, OPEN, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
        IN_CHILD(stamp(p + 4 * PAGE, PAGE, 4));
        if (!before) CHECK(mmap(p + 3 * PAGE, PAGE, OPEN, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
        uint32_t *word = (uint32_t *)(p + 9 * PAGE + 64);
        CHECK(syscall(SYS_futex, word, FUTEX_WAKE_OP, 1, 1, word, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)) == 0);
        CHECK(*word == 3);
        CHECK(getrusage(RUSAGE_SELF, (struct rusage *)(p + 17 * PAGE + 64)) == 0);
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
        CHECK(send(pair[0], "datagram", 8, 0) == 8);
        CHECK(recv(pair[1], p + 20 * PAGE + 64, 64, 0) == 8);
        IN_CHILD(CHECK(getrusage(RUSAGE_SELF, (struct rusage *)(p + 25 * PAGE + 64)) == 0));
        close(pair[0]), close(pair[1]), close(fd);
        CHECK(munmap(p, LEN) == 0);
    }
}

/* What is locked is not shared by the next fork, nor what came in beside it since the last. */
static void calls_in_a_child_of_locked_memory(void) {
    uint8_t *p = rw(LEN);
    stamp(p, 8 * PAGE, 13);
    IN_CHILD(STAMPED(p, 8 * PAGE, 13));
    CHECK(mlock(p, PAGE) == 0);
    stamp(p + 20 * PAGE, 8 * PAGE, 14);
    IN_CHILD(CHECK(getrusage(RUSAGE_SELF, (struct rusage *)(p + 21 * PAGE + 64)) == 0));
    STAMPED(p, 8 * PAGE, 13);
    STAMPED(p + 20 * PAGE, 8 * PAGE, 14);
    CHECK(munmap(p, LEN) == 0);
}

/* A receive that fails takes one datagram, not two. */
static void one_datagram_is_lost(void) {
    int pair[2];
    char byte = 0;
    uint8_t *p = rw(PAGE);
    p[0] = 1;
    CHECK(mprotect(p, PAGE, PROT_READ) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    CHECK(send(pair[0], "1", 1, 0) == 1 && send(pair[0], "2", 1, 0) == 1);
    FAILS(recv(pair[1], p, PAGE, MSG_DONTWAIT) == -1, EFAULT);
    CHECK(recv(pair[1], &byte, 1, MSG_DONTWAIT) == 1 && byte == '2');
    close(pair[0]), close(pair[1]);
    CHECK(munmap(p, PAGE) == 0);
}

/* A pipe takes nothing of a page that it cannot have whole. */
static void a_vector_ends_in_nothing(void) {
    int ends[2];
    uint8_t *p = rw(8 * PAGE), got[3 * PAGE];
    stamp(p, 8 * PAGE, 5);
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0 && pipe2(ends, O_NONBLOCK) == 0);
    struct iovec parts[] = {{p, PAGE + 37}, {p + 3 * PAGE + 4000, 200}};
    CHECK(writev(ends[1], parts, 2) == (ssize_t)PAGE);
    CHECK(read(ends[0], got, sizeof got) == (ssize_t)PAGE);
    close(ends[0]), close(ends[1]);
    CHECK(munmap(p, 8 * PAGE) == 0);
}

/* What cannot be mapped leaves what is there. */
static void failures_change_nothing(void) {
    int fd = file_of(1), readable = open("/proc/self/exe", O_RDONLY);
    uint8_t *p = rw(LEN);
    stamp(p, LEN, 6);
    FAILS(mmap(p, PAGE, OPEN, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED, EBADF);
    FAILS(mmap(p, PAGE, OPEN, MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED, EBADF);
    FAILS(mmap(p, PAGE, OPEN, MAP_SHARED | MAP_FIXED, readable, 0) == MAP_FAILED, EACCES);
    FAILS(mmap(p, PAGE, OPEN, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED, EEXIST);
    uint8_t *outside = mmap(NULL, 2 * PAGE, OPEN, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(outside != MAP_FAILED && munmap(outside, 2 * PAGE) == 0);
    FAILS(mremap(outside, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED, EFAULT);
    STAMPED(p, LEN, 6);
    CHECK(munmap(p, LEN) == 0);
    close(fd), close(readable);
}

/* Programs ask by msync what is mapped, and advice goes on behind a hole. */
static void holes(void) {
    int fd = file_of(2);
    uint8_t *p = rw(LEN);
    stamp(p, LEN, 7);
    CHECK(msync(p, LEN, MS_ASYNC) == 0);
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    FAILS(msync(p, LEN, MS_ASYNC) == -1, ENOMEM);
    FAILS(msync(p + 4 * PAGE, PAGE, MS_SYNC) == -1, ENOMEM);
    FAILS(msync(p, LEN, MS_ASYNC | MS_SYNC) == -1, EINVAL);
    FAILS(madvise(p + 4 * PAGE, PAGE, MADV_REMOVE) == -1, ENOMEM);
    FAILS(madvise(p, PAGE, MADV_REMOVE) == -1, EINVAL);
    FAILS(madvise(p + 4 * PAGE, PAGE, 99) == -1, EINVAL);
    uint8_t *file = p + 6 * PAGE;
    CHECK(mmap(file, 2 * PAGE, OPEN, MAP_PRIVATE | MAP_FIXED, fd, 0) == file);
    file[0] = 1;
    FAILS(madvise(p, LEN, MADV_DONTNEED) == -1, ENOMEM);
    CHECK(file[0] == 0 && zero(p, PAGE));
    CHECK(ftruncate(fd, PAGE) == 0);
    FAILS(mlock(file, 2 * PAGE) == -1, ENOMEM);
    CHECK(munlock(file, 2 * PAGE) == 0);
    CHECK(mprotect(p, PAGE, PROT_NONE) == 0);
    FAILS(mlock(p, PAGE) == -1, ENOMEM);
    CHECK(munmap(p, LEN) == 0);
    close(fd);
}

/* A mapping of the program's own between others is protected, too. */
static void protecting_a_file(void) {
    int fd = file_of(1), ends[2];
    uint8_t *p = rw(LEN);
    CHECK(mmap(p + PAGE, PAGE, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == p + PAGE && pipe(ends) == 0);
    CHECK(mprotect(p, LEN, PROT_READ) == 0 && zero(p, LEN));
    FAILS(read(open("/dev/zero", O_RDONLY), p + PAGE, 1) == -1, EFAULT);
    CHECK(mprotect(p, LEN, OPEN) == 0);
    stamp(p, LEN, 11);
    STAMPED(p, LEN, 11);
    CHECK(mprotect(p, LEN, PROT_NONE) == 0);
    FAILS(write(ends[1], p + PAGE, 1) == -1, EFAULT);
    CHECK(munmap(p, LEN) == 0);
    close(fd), close(ends[0]), close(ends[1]);
}

/* Each is undone by its own opposite. */
static void policies_of_a_fork(void) {
    uint8_t *p = rw(LEN);
    stamp(p, LEN, 8);
    CHECK(madvise(p, LEN, MADV_WIPEONFORK) == 0 && madvise(p, LEN, MADV_DONTFORK) == 0);
    CHECK(madvise(p, LEN, MADV_DOFORK) == 0);
    IN_CHILD(CHECK(zero(p, LEN)));
    CHECK(madvise(p, LEN, MADV_DONTFORK) == 0 && madvise(p, LEN, MADV_KEEPONFORK) == 0);
    IN_CHILD(FAILS(msync(p, LEN, MS_ASYNC) == -1, ENOMEM));
    CHECK(madvise(p, LEN, MADV_DOFORK) == 0);
    IN_CHILD(STAMPED(p, LEN, 8));
    CHECK(munmap(p, LEN) == 0);
}

/* What a child does not have of the program's own mappings can be mapped anew there. */
static void a_file_that_is_not_inherited(void) {
    int fd = file_of(1);
    uint8_t *p = rw(LEN);
    stamp(p, LEN, 12);
    CHECK(mmap(p + PAGE, PAGE, OPEN, MAP_SHARED | MAP_FIXED, fd, 0) == p + PAGE);
    CHECK(madvise(p + PAGE, PAGE, MADV_DONTFORK) == 0);
    IN_CHILD(FAILS(mremap(p + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED, EFAULT);
             STAMPED(p, PAGE, 12);
             FAILS(msync(p, LEN, MS_ASYNC) == -1, ENOMEM);
             CHECK(mmap(p + PAGE, PAGE, OPEN, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p + PAGE);
             CHECK(zero(p + PAGE, PAGE)));
    CHECK(munmap(p, LEN) == 0);
    close(fd);
}

/* A mapping takes along that it is not inherited, wherever it is moved; its neighbours are. */
static void a_moved_file_that_is_not_inherited(void) {
    int fd = file_of(4);
    uint8_t *p = rw(LEN), *outside = mmap(NULL, 4 * PAGE, OPEN, MAP_SHARED, fd, 0);
    stamp(p, LEN, 15);
    CHECK(outside != MAP_FAILED && madvise(outside + PAGE, 2 * PAGE, MADV_DONTFORK) == 0);
    CHECK(mmap(p, LEN / 2, OPEN, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
    CHECK(mremap(outside + PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * PAGE) == p + 3 * PAGE);
    for (size_t at = 3; at < 12; at += 8) {
        IN_CHILD(stamp(p, 3 * PAGE, 16);
                 FAILS(msync(p + at * PAGE, 2 * PAGE, MS_ASYNC) == -1, ENOMEM);
                 CHECK(mmap(p + at * PAGE, 2 * PAGE, OPEN, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
                       p + at * PAGE);
                 CHECK(zero(p + at * PAGE, 2 * PAGE) && msync(p + 5 * PAGE, 6 * PAGE, MS_ASYNC) == 0);
                 STAMPED(p + LEN / 2, LEN / 2, 15 + LEN / 2));
        STAMPED(p, 3 * PAGE, 16);
        if (at == 3) CHECK(mremap(p + 3 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 11 * PAGE) == p + 11 * PAGE);
        if (at == 3) CHECK(mmap(p + 3 * PAGE, 2 * PAGE, OPEN, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 3 * PAGE);
    }
    CHECK(munmap(p, LEN) == 0 && munmap(outside, 4 * PAGE) == 0);
    close(fd);
}

/* What children get of memory goes along to where it is not managed, and stays where it was. */
static void a_policy_leaves_the_arena(void) {
    for (int wiped = 0; wiped < 2; wiped++) {
        uint8_t *p = rw(LEN), *outside = mmap(NULL, LEN, OPEN, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(outside != MAP_FAILED && munmap(outside, LEN) == 0);
        stamp(p, LEN, 17);
        CHECK(madvise(p, LEN, wiped ? MADV_WIPEONFORK : MADV_DONTFORK) == 0);
        CHECK(mremap(p, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, outside) == outside);
        STAMPED(outside, LEN, 17);
        CHECK(zero(p, LEN));
        stamp(p, LEN, 18);
        for (int i = 0; i < 2; i++) {
            uint8_t *here = i ? p : outside;
            if (wiped) IN_CHILD(CHECK(zero(here, LEN)));
            else IN_CHILD(FAILS(msync(here, PAGE, MS_ASYNC) == -1, ENOMEM));
        }
        CHECK(munmap(p, LEN) == 0 && munmap(outside, LEN) == 0);
    }
}

/* What stays behind is as it was, but for its contents, and goes where it was asked to. */
static void moved_and_still_there(void) {
    enum { ALL = MREMAP_MAYMOVE | MREMAP_DONTUNMAP };
    uint8_t *p = rw(LEN), *wanted = rw(LEN);
    CHECK(munmap(wanted, LEN) == 0);
    stamp(p, LEN, 9);
    CHECK(madvise(p, LEN, MADV_WIPEONFORK) == 0);
    FAILS(mremap(p, LEN, LEN, ALL, p) == MAP_FAILED, EINVAL);
    CHECK(mremap(p, LEN, LEN, ALL, wanted) == wanted);
    STAMPED(wanted, LEN, 9);
    CHECK(zero(p, LEN));
    stamp(p, LEN, 10);
    IN_CHILD(CHECK(zero(p, LEN) && zero(wanted, LEN)));
    CHECK(mprotect(p, LEN, PROT_NONE) == 0);
    CHECK(mremap(p, LEN, LEN, ALL | MREMAP_FIXED, wanted) == wanted);
    CHECK(mprotect(wanted, LEN, PROT_READ) == 0);
    STAMPED(wanted, LEN, 10);
    CHECK(mprotect(p, LEN, PROT_READ) == 0 && zero(p, LEN));
    CHECK(munmap(p, LEN) == 0 && munmap(wanted, LEN) == 0);
}

/* The kernel looks at the offset before all else, of memory without a file too. */
static void an_offset_within_a_page(void) {
    uint8_t *at = (uint8_t *)0x140000000000 - 4 * PAGE;
    int fixed = MAP_PRIVATE | MAP_FIXED_NOREPLACE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    FAILS(mmap(at, 8 * PAGE, OPEN, fixed, 999, 1) == MAP_FAILED, EINVAL);
    FAILS(mmap(at, PAGE, OPEN, fixed | MAP_ANONYMOUS, -1, PAGE + 1) == MAP_FAILED, EINVAL);
    FAILS(mmap(NULL, PAGE, OPEN, anonymous, -1, 8) == MAP_FAILED, EINVAL);
    FAILS(mmap(NULL, PAGE, OPEN, MAP_PRIVATE, 999, 8) == MAP_FAILED, EINVAL);
    FAILS(syscall(SYS_mmap, NULL, PAGE, OPEN, anonymous, -1, 8) == -1, EINVAL);
}

/* Where managed memory ends, too, the kernel looks at the file first, and then at what is there. */
static void a_bad_file_across_the_edge(void) {
    uint8_t *at = (uint8_t *)0x140000000000 - 4 * PAGE;
    int fixed = MAP_PRIVATE | MAP_FIXED_NOREPLACE;
    CHECK(mmap(at, 8 * PAGE, OPEN, fixed | MAP_ANONYMOUS, -1, 0) == at);
    stamp(at, 8 * PAGE, 7);
    FAILS(mmap(at, 8 * PAGE, OPEN, fixed, 999, 0) == MAP_FAILED, EBADF);
    FAILS(mmap(at, 8 * PAGE, OPEN, MAP_PRIVATE | MAP_FIXED, 999, 0) == MAP_FAILED, EBADF);
    int fd = file_of(8);
    FAILS(mmap(at, 8 * PAGE, OPEN, fixed, fd, 0) == MAP_FAILED, EEXIST);
    STAMPED(at, 8 * PAGE, 7);
    CHECK(close(fd) == 0 && munmap(at, 8 * PAGE) == 0);
}

int main(void) {
    an_offset_within_a_page();
    calls_after_a_fork_beside_a_file();
    calls_in_a_child_of_locked_memory();
    one_datagram_is_lost();
    a_vector_ends_in_nothing();
    failures_change_nothing();
    holes();
    protecting_a_file();
    policies_of_a_fork();
    a_file_that_is_not_inherited();
    a_moved_file_that_is_not_inherited();
    a_policy_leaves_the_arena();
    moved_and_still_there();
    a_bad_file_across_the_edge();
    puts("ok");
    return 0;
}
