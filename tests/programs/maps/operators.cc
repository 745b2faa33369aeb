// C++ new and delete in all their forms, and what happens when there is no memory.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#define CHECK(cond)                                                  \
    do {                                                             \
        if (!(cond)) {                                               \
            std::fprintf(stderr, "line %d: failed: %s\n", __LINE__, #cond); \
            std::exit(1);                                            \
        }                                                            \
    } while (0)

struct alignas(256) Wide {
    char bytes[512];
};

static int helped = 0;
static char *reserve = nullptr;

static void help() {
    helped++;
    delete[] reserve;
    reserve = nullptr;
    std::set_new_handler(nullptr);
}

static bool throws(std::size_t size) {
    try {
        char *volatile p = new char[size];
        delete[] p;
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

int main() {
    volatile std::size_t huge = std::size_t(1) << 62;
    CHECK(throws(huge));
    CHECK(new (std::nothrow) char[huge] == nullptr);
    reserve = new char[1000];
    std::set_new_handler(help);
    CHECK(throws(huge) && helped == 1 && std::get_new_handler() == nullptr);
    try {
        struct alignas(64) Big { char b[1 << 20]; };
        Big *volatile p = new Big[huge >> 20];
        delete[] p;
        CHECK(false);
    } catch (const std::bad_alloc &) {
    }
    for (int i = 0; i < 1000; i++) {
        Wide *w = new Wide, *many = new Wide[3];
        CHECK((reinterpret_cast<std::uintptr_t>(w) & 255) == 0);
        CHECK((reinterpret_cast<std::uintptr_t>(many) & 255) == 0);
        std::memset(w, 1, sizeof *w);
        delete w;
        delete[] many;
    }
    std::map<std::string, std::vector<int>> m;
    auto fill = [](std::map<std::string, std::vector<int>> &m, int seed) {
        for (int i = 0; i < 20000; i++) m[std::to_string(i * 7919 % 20000)].push_back(i + seed);
    };
    std::vector<std::map<std::string, std::vector<int>>> maps(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) threads.emplace_back([&, t] { fill(maps[t], t); });
    for (auto &t : threads) t.join();
    for (int t = 0; t < 4; t++) {
        CHECK(maps[t].size() == 20000);
        for (auto &[k, v] : maps[t]) CHECK(v.size() == 1 && (v[0] - t) * 7919L % 20000 == std::stol(k));
    }
    std::puts("ok");
}
