// uzswap for C++17: a pool as std::pmr::memory_resource.
#ifndef UZSWAP_HPP
#define UZSWAP_HPP

#include <memory_resource>
#include <new>
#include <stdexcept>

#include "uzswap.h"

namespace uzswap {

// A pool, which ends with this. Containers that use it must end before.
class pool_resource : public std::pmr::memory_resource {
public:
  explicit pool_resource(uint64_t limit) : pool_resource(with_limit(limit)) {}

  explicit pool_resource(const uzswap_params &params) {
    if (uzswap_pool_create(&params, &pool_) != UZSWAP_OK)
      throw std::runtime_error(uzswap_error_text());
  }

  ~pool_resource() override { uzswap_pool_destroy(pool_); }
  pool_resource(const pool_resource &) = delete;
  pool_resource &operator=(const pool_resource &) = delete;

  uzswap_pool *get() const noexcept { return pool_; }

  uzswap_stats stats() const noexcept {
    uzswap_stats stats{};
    stats.size = sizeof stats;
    uzswap_get_stats(pool_, &stats);
    return stats;
  }

private:
  static uzswap_params with_limit(uint64_t limit) noexcept {
    uzswap_params params = UZSWAP_PARAMS_INIT;
    params.limit = limit;
    return params;
  }

  void *do_allocate(size_t size, size_t alignment) override {
    if (void *memory = uzswap_aligned_alloc(pool_, alignment, size))
      return memory;
    throw std::bad_alloc();
  }

  void do_deallocate(void *memory, size_t size, size_t alignment) override {
    uzswap_aligned_free(pool_, memory, alignment, size);
  }

  bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }

  uzswap_pool *pool_ = nullptr;
};

} // namespace uzswap

#endif
