// Prints how much memory there is, in all and free, as each of the C library's ways to ask says it:
// first at once, then with 64 MiB held. Checks that a file opened for reading behaves as one.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void parse(const char *way, const char *text) {
    unsigned long total = 0, freed = 0, available = 0;
    const char *at = strstr(text, "MemTotal:");
    const char *format = "MemTotal: %lu kB MemFree: %lu kB MemAvailable: %lu";
    if (!at || sscanf(at, format, &total, &freed, &available) != 3) fail(way);
    printf("%s %lu %lu\n", way, total << 10, freed << 10);
    printf("%s-available %lu %lu\n", way, total << 10, available << 10);
}

static void ask(void) {
    char text[8192];
    struct sysinfo info;
    if (sysinfo(&info)) fail("sysinfo");
    printf("sysinfo %lu %lu\n", info.totalram * info.mem_unit, info.freeram * info.mem_unit);
    long page = sysconf(_SC_PAGESIZE);
    printf("sysconf %ld %ld\n", sysconf(_SC_PHYS_PAGES) * page, sysconf(_SC_AVPHYS_PAGES) * page);
    printf("get_phys_pages %ld %ld\n", get_phys_pages() * page, get_avphys_pages() * page);

    FILE *stream = fopen("/proc/meminfo", "re");
    if (!stream) fail("fopen");
    if (!(fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC)) fail("close-on-exec");
    size_t len = fread(text, 1, sizeof text - 1, stream);
    text[len] = 0;
    parse("fopen", text);
    rewind(stream);
    if (fread(text, 1, sizeof text - 1, stream) != len) fail("rewind");
    fclose(stream);

    // The lowest number is its own, as of any file.
    int lowest = dup(0);
    close(lowest);
    // A path on the heap, which is managed memory.
    char *path = strdup("/proc/meminfo");
    int fd = open(path, O_RDONLY);
    if (fd != lowest || fcntl(fd, F_GETFD) != 0) fail("open");
    len = read(fd, text, sizeof text - 1);
    text[len] = 0;
    parse("open", text);
    close(fd);
    fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    len = pread(fd, text, sizeof text - 1, 0);
    text[len] = 0;
    parse("openat", text);
    close(fd);
    free(path);
}

static void on_alarm(int signal) {
    (void)signal;
}

int main(int argc, char **argv) {
    ask();
    char *held = malloc(64 << 20);
    for (int i = 0; i < 64 << 20; i++) held[i] = (char)(i / 999);
    printf("held\n");
    ask();
    for (int i = 0; i < 64 << 20; i++)
        if (held[i] != (char)(i / 999)) fail("memory");

    // What fails natively fails as it does natively.
    if (open((const char *)16, O_RDONLY) != -1 || errno != EFAULT) fail("a bad address");
    if (open("/proc/meminfo/x", O_RDONLY) != -1 || errno != ENOTDIR) fail("no directory");
    if (open("/proc/nothing", O_RDONLY) != -1 || errno != ENOENT) fail("no file");
    if (fopen("/proc/nothing", "r") || errno != ENOENT) fail("no stream");
    // An open that waits can be interrupted.
    if (argc > 1) {
        struct sigaction action = {.sa_handler = on_alarm};
        sigaction(SIGALRM, &action, NULL);
        if (mkfifo(argv[1], 0600)) fail("mkfifo");
        alarm(1);
        if (open(argv[1], O_RDONLY) != -1 || errno != EINTR) fail("a fifo");
    }
    return 0;
}
