// A map of strings that has more than its limit.  c++ -std=c++17 words.cpp -luzswap
#include <cstdio>
#include <map>
#include <string>
#include <uzswap.hpp>

int main() {
  const uint64_t limit = 32 << 20;
  uzswap::pool_resource pool(limit);
  std::pmr::map<int, std::pmr::string> words(&pool);
  for (int n = 0; n < 60000; n++)
    words[n].assign(1500, static_cast<char>('a' + n % 26));
  for (const auto &[n, word] : words)
    if (word.size() != 1500 || word.back() != 'a' + n % 26)
      return 2;
  const uzswap_stats stats = pool.stats();
  std::printf("%zu words: %zu bytes in %zu of RAM\n", words.size(),
              static_cast<size_t>(stats.mapped), static_cast<size_t>(stats.peak));
  return stats.peak <= limit && stats.mapped > 2 * limit ? 0 : 3;
}
