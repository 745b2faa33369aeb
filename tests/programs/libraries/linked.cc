// A program linked with an allocator gets all of its memory from that one, by whatever function,
// and may free it by any other.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

int main() {
    void *(*volatile make)(std::size_t) = std::malloc;
    void (*volatile dispose)(void *) = std::free;
    for (int i = 0; i < 100; i++) {
        dispose(::operator new(100));
        ::operator delete(make(100));
        ::operator delete(strdup("a copy"));
        dispose(realpath("/", nullptr));
        char *text = nullptr;
        std::size_t len = 0;
        FILE *file = fmemopen(const_cast<char *>("a line\n"), 7, "r");
        if (getline(&text, &len, file) != 7) return 1;
        std::fclose(file);
        dispose(text);
    }
    std::puts("right");
}
