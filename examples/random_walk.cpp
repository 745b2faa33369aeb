// A threaded C++ job of over 1 GiB: random walkers leave tracks on a large grid, which is then
// searched for its busiest places.
//
//     g++ -O2 -std=c++20 -pthread -o random_walk examples/random_walk.cpp
//     ./random_walk                              # 1.1 GiB, natively
//     uzswap run --ram 128M -- ./random_walk     # the same output from 128 MiB
//
// Usage: random_walk [ROWS [THREADS [WALKERS]]]; memory is 64 KiB a row plus the walkers' diaries.
// The output depends on ROWS and WALKERS alone, not on threads or timing.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t columns = 16384;
constexpr unsigned steps = 2000;

std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// What one walker remembers: where it turned, in words.
using Diary = std::vector<std::string>;

Diary walk(std::vector<std::uint32_t> &grid, std::uint64_t walker) {
    const std::size_t rows = grid.size() / columns;
    std::uint64_t rng = mix(walker);
    std::size_t row = rng % rows, column = rng / rows % columns;
    Diary diary;
    for (unsigned step = 0; step < steps; ++step) {
        rng = mix(rng);
        row = (row + rows + rng % 3 - 1) % rows;
        column = (column + columns + rng / 3 % 3 - 1) % columns;
        // Walkers of other threads may cross here.
        std::atomic_ref(grid[row * columns + column]).fetch_add(1, std::memory_order_relaxed);
        if (rng % 16 == 0)
            diary.push_back("step " + std::to_string(step) + ": turned at row " +
                            std::to_string(row) + ", column " + std::to_string(column));
    }
    return diary;
}

} // namespace

int main(int argc, char **argv) {
    const std::size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 16384;
    const unsigned nr_threads = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 4;
    const std::size_t walkers = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 8000;
    if (rows == 0 || nr_threads == 0) {
        std::fprintf(stderr, "usage: random_walk [ROWS [THREADS [WALKERS]]]\n");
        return 2;
    }
    std::vector<std::uint32_t> grid(rows * columns);
    std::vector<Diary> diaries(walkers);
    {
        std::vector<std::jthread> threads;
        for (unsigned t = 0; t < nr_threads; ++t)
            threads.emplace_back([&, t] {
                for (std::size_t w = t; w < walkers; w += nr_threads)
                    diaries[w] = walk(grid, w);
            });
    }
    std::uint64_t total = 0, digest = 0;
    std::map<std::uint32_t, std::uint64_t> cells_by_count;
    for (std::size_t i = 0; i < grid.size(); ++i)
        if (const std::uint32_t count = grid[i]) {
            total += count;
            digest = mix(digest ^ i ^ std::uint64_t{count} << 40);
            ++cells_by_count[count];
        }
    std::uint64_t turns = 0;
    for (const Diary &diary : diaries)
        for (const std::string &entry : diary) {
            ++turns;
            for (const char c : entry)
                digest = digest * 31 + static_cast<unsigned char>(c);
        }
    const auto busiest = cells_by_count.rbegin();
    std::printf("steps %llu, turns %llu, busiest cell visited %u times, digest %016llx\n",
                static_cast<unsigned long long>(total), static_cast<unsigned long long>(turns),
                busiest == cells_by_count.rend() ? 0 : busiest->first,
                static_cast<unsigned long long>(digest));
    return total == walkers * steps ? 0 : 1;
}
