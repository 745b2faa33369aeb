/* Memory that a program serves faults in itself, where the kernel has too few mappings left to let
 * it: what fails changes nothing, and leaves nothing behind. Without userfaultfd managed memory
 * takes mappings itself. */
// modes: signal thread
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define N (32 * PAGE)

static uint8_t *wall;
static long used;

/* Every second page of shared memory is another mapping. */
static void use_up_mappings(long most) {
    wall = mmap(NULL, (size_t)most * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(wall != MAP_FAILED);
    while (mprotect(wall + (2 * used + 1) * PAGE, PAGE, PROT_READ) == 0) used++;
    CHECK(errno == ENOMEM && used > 100);
}

static void spare_two(void) {
    used--;
    CHECK(mprotect(wall + (2 * used + 1) * PAGE, PAGE, PROT_NONE) == 0);
}

static long pages_mapped(void) {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    return strtol(text, NULL, 10);
}

int main(void) {
    long most = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(f && fscanf(f, "%ld", &most) == 1);
    fclose(f);
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0 || most > 1 << 18) {
        printf("skipped: %s\n", fd < 0 ? "no userfaultfd" : "too many mappings to use up");
        return 0;
    }
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
    /* Different from what is around it, it takes mappings of its own. */
    uint8_t *area = rw(3 * N) + N;
    stamp(area, N, 3);
    struct uffdio_register reg = {
        .range = {(uintptr_t)area, N}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    use_up_mappings(most);
    long before = pages_mapped();
    int refused = 0;
    while (ioctl(fd, UFFDIO_REGISTER, &reg) != 0) {
        CHECK(errno == ENOMEM && ++refused < 20);
        STAMPED(area, N, 3);
        CHECK(pages_mapped() < before + N / PAGE);
        spare_two();
    }
    CHECK(refused > 0);
    STAMPED(area, N, 3);
    puts("ok");
    return 0;
}
