/* uzswap for jemalloc 5: an arena whose extents are a pool's. Give UZSWAP_EXTENT_HOOKS(pool), which
 * must live as long as the arena, to "arenas.create"; the pool must outlive both. */
#ifndef UZSWAP_JEMALLOC_H
#define UZSWAP_JEMALLOC_H

#include <jemalloc/jemalloc.h>

#include "uzswap.h"

/* jemalloc's hooks, and the pool behind them. */
typedef struct uzswap_extent_hooks {
  extent_hooks_t hooks;
  uzswap_pool *pool;
} uzswap_extent_hooks;

static inline uzswap_pool *uzswap_pool_of_hooks(extent_hooks_t *hooks) {
  return ((uzswap_extent_hooks *)hooks)->pool;
}

/* Pages come zero and committed. None can be had at an address of jemalloc's choice. */
static inline void *uzswap_extent_alloc(extent_hooks_t *hooks, void *new_addr, size_t size,
                                        size_t alignment, bool *zero, bool *commit,
                                        unsigned arena) {
  void *memory;
  (void)arena;
  if (new_addr != NULL)
    return NULL;
  memory = uzswap_map(uzswap_pool_of_hooks(hooks), size, alignment);
  if (memory != NULL)
    *zero = *commit = true;
  return memory;
}

static inline bool uzswap_extent_dalloc(extent_hooks_t *hooks, void *memory, size_t size,
                                        bool committed, unsigned arena) {
  (void)committed, (void)arena;
  uzswap_unmap(uzswap_pool_of_hooks(hooks), memory, size);
  return false;
}

static inline void uzswap_extent_destroy(extent_hooks_t *hooks, void *memory, size_t size,
                                         bool committed, unsigned arena) {
  (void)committed, (void)arena;
  uzswap_unmap(uzswap_pool_of_hooks(hooks), memory, size);
}

static inline bool uzswap_extent_purge(extent_hooks_t *hooks, void *memory, size_t size,
                                       size_t offset, size_t length, unsigned arena) {
  (void)size, (void)arena;
  uzswap_discard(uzswap_pool_of_hooks(hooks), (char *)memory + offset, length);
  return false;
}

/* A pool's pages may be split and merged anywhere. */
static inline bool uzswap_extent_split(extent_hooks_t *hooks, void *memory, size_t size,
                                       size_t first, size_t second, bool committed,
                                       unsigned arena) {
  (void)hooks, (void)memory, (void)size, (void)first, (void)second, (void)committed, (void)arena;
  return false;
}

static inline bool uzswap_extent_merge(extent_hooks_t *hooks, void *low, size_t low_size,
                                       void *high, size_t high_size, bool committed,
                                       unsigned arena) {
  (void)hooks, (void)low, (void)low_size, (void)high, (void)high_size, (void)committed, (void)arena;
  return false;
}

/* As an initializer. No commit, decommit, or lazy purge. */
#define UZSWAP_EXTENT_HOOKS(pool)                                                                  \
  {{uzswap_extent_alloc, uzswap_extent_dalloc, uzswap_extent_destroy, NULL, NULL, NULL,            \
    uzswap_extent_purge, uzswap_extent_split, uzswap_extent_merge},                                \
   (pool)}

#endif
