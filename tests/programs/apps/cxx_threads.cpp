// cxx_threads MIB THREADS SEED
//
// What: a threaded C++ program as they are written: containers of strings, shared pointers, a work
// queue with condition variables, exceptions, futures, string streams, aligned new. Producers
// build records, consumers index them, all checked against sums that follow from the seed.
// Prints the same lines for the same MIB and SEED, whatever THREADS is.
//
// Exit status: 0 all was right, 1 it was not.
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

struct Record {
    std::uint64_t id;
    std::string name;
    std::vector<std::string> tags;
    std::array<double, 32> samples{};
};

// A queue that several threads fill and several empty.
class Queue {
  public:
    void push(std::shared_ptr<Record> record) {
        {
            std::unique_lock lock(mutex_);
            room_.wait(lock, [&] { return records_.size() < 1000; });
            records_.push_back(std::move(record));
        }
        some_.notify_one();
    }
    std::shared_ptr<Record> pop() {
        std::unique_lock lock(mutex_);
        some_.wait(lock, [&] { return !records_.empty() || closed_; });
        if (records_.empty())
            return nullptr;
        auto record = std::move(records_.front());
        records_.pop_front();
        room_.notify_one();
        return record;
    }
    void close() {
        std::lock_guard lock(mutex_);
        closed_ = true;
        some_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable some_, room_;
    std::deque<std::shared_ptr<Record>> records_;
    bool closed_ = false;
};

std::shared_ptr<Record> make(std::uint64_t id, std::uint64_t seed) {
    auto record = std::make_shared<Record>();
    record->id = id;
    std::ostringstream name;
    name << "record number " << id << " of the series that began with " << seed;
    record->name = name.str();
    const auto h = mix(id ^ seed << 32);
    for (unsigned i = 0; i < 4 + h % 5; ++i)
        record->tags.push_back("a tag that is longer than what fits into the string itself, " +
                               std::to_string((h >> 8) % 16 + i));
    record->samples[h % record->samples.size()] = static_cast<double>(id);
    return record;
}

std::uint64_t digest_of(const Record &record) {
    std::uint64_t d = mix(record.id);
    for (const char c : record.name)
        d = d * 31 + static_cast<unsigned char>(c);
    for (const auto &tag : record.tags)
        for (const char c : tag)
            d = d * 31 + static_cast<unsigned char>(c);
    for (const double sample : record.samples)
        d = d * 31 + static_cast<std::uint64_t>(sample);
    return mix(d);
}

struct alignas(256) Aligned {
    std::array<std::uint64_t, 64> words;
};

} // namespace

int main(int argc, char **argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: cxx_threads MIB THREADS SEED\n");
        return 2;
    }
    const std::uint64_t nr_records = std::strtoull(argv[1], nullptr, 10) * 860;
    const unsigned nr_threads = std::max(1UL, std::strtoul(argv[2], nullptr, 10));
    const std::uint64_t seed = std::strtoull(argv[3], nullptr, 10);

    Queue queue;
    std::vector<std::unordered_map<std::uint64_t, std::shared_ptr<Record>>> shards(16);
    std::vector<std::mutex> locks(shards.size());
    std::vector<std::thread> producers, consumers;
    std::atomic<std::uint64_t> caught{0};
    for (unsigned t = 0; t < nr_threads; ++t) {
        producers.emplace_back([&, t] {
            for (std::uint64_t id = t; id < nr_records; id += nr_threads) {
                queue.push(make(id, seed));
                // Unwinding reads tables and allocates from the exception pool and the heap.
                if (id % 1000 == 0)
                    try {
                        throw std::runtime_error("thrown for record " + std::to_string(id));
                    } catch (const std::exception &e) {
                        caught += std::strlen(e.what()) > 10;
                    }
            }
        });
        consumers.emplace_back([&] {
            while (auto record = queue.pop()) {
                const auto shard = record->id % shards.size();
                std::lock_guard lock(locks[shard]);
                shards[shard].emplace(record->id, std::move(record));
            }
        });
    }
    for (auto &thread : producers)
        thread.join();
    queue.close();
    for (auto &thread : consumers)
        thread.join();

    // Every shard is read through by a task of its own, then changed and read again.
    std::uint64_t first = 0, second = 0, want_first = 0;
    for (int pass = 0; pass < 2; ++pass) {
        std::vector<std::future<std::uint64_t>> sums;
        for (auto &shard : shards)
            sums.push_back(std::async(std::launch::async, [&shard, pass] {
                std::uint64_t sum = 0;
                for (auto &[id, record] : shard) {
                    sum += digest_of(*record);
                    if (pass == 0 && id % 3 == 0) {
                        record->tags.pop_back();
                        record->tags.shrink_to_fit();
                        record->name += ", touched again";
                    }
                }
                return sum;
            }));
        for (auto &sum : sums)
            (pass == 0 ? first : second) += sum.get();
    }
    for (std::uint64_t id = 0; id < nr_records; ++id)
        want_first += digest_of(*make(id, seed));

    // An ordered index by name, and aligned objects in between.
    std::map<std::string, const Record *> by_name;
    std::vector<std::unique_ptr<Aligned>> aligned;
    bool straight = true;
    for (const auto &shard : shards)
        for (const auto &[id, record] : shard)
            if (id % 16 == 5) {
                by_name.emplace(record->name, record.get());
                aligned.push_back(std::make_unique<Aligned>());
                aligned.back()->words.fill(id);
                straight &= reinterpret_cast<std::uintptr_t>(aligned.back().get()) % 256 == 0;
            }
    for (const auto &object : aligned)
        straight &= std::ranges::all_of(object->words, [&](auto w) { return w == object->words[0]; });
    std::uint64_t ordered = 0;
    for (const auto &[name, record] : by_name)
        ordered = mix(ordered ^ record->id);

    std::printf("records %llu, digest %016llx, after changes %016llx, ordered %016llx\n",
                static_cast<unsigned long long>(nr_records), static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(second), static_cast<unsigned long long>(ordered));
    std::printf("caught %llu, aligned %s\n", static_cast<unsigned long long>(caught.load()),
                straight ? "yes" : "NO");
    return first == want_first && straight ? 0 : 1;
}
