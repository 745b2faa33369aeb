/* An arena of jemalloc's in a pool: objects of many sizes, of four times the limit in all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uzswap_jemalloc.h>

#define CHECK(holds)                                                                               \
  if (!(holds)) {                                                                                  \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #holds, uzswap_error_text());                   \
    return 1;                                                                                      \
  }

enum { NR = 20000 };
static unsigned char *objects[NR];
static size_t size_of(int n) { return (size_t)n * 7919 % 6400 + 1; }

int main(void) {
  uzswap_params params = UZSWAP_PARAMS_INIT;
  uzswap_pool *pool;
  params.limit = 16 << 20;
  CHECK(uzswap_pool_create(&params, &pool) == UZSWAP_OK);
  static uzswap_extent_hooks hooks = UZSWAP_EXTENT_HOOKS(NULL);
  hooks.pool = pool;
  extent_hooks_t *ours = &hooks.hooks;
  unsigned arena;
  size_t size = sizeof arena;
  CHECK(mallctl("arenas.create", &arena, &size, &ours, sizeof ours) == 0);
  int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
  for (int round = 0; round < 3; round++) {
    for (int n = 0; n < NR; n++) {
      CHECK((objects[n] = mallocx(size_of(n), flags)) != NULL);
      CHECK(uzswap_contains(pool, objects[n]));
      memset(objects[n], n % 251, size_of(n));
    }
    for (int n = 0; n < NR; n++) {
      CHECK(objects[n][0] == n % 251 && objects[n][size_of(n) - 1] == n % 251);
      dallocx(objects[n], flags);
    }
    void *large = mallocx(24 << 20, flags | MALLOCX_ALIGN(2 << 20));
    CHECK(large != NULL && (size_t)large % (2 << 20) == 0);
    dallocx(large, flags);
    char purge[64];
    snprintf(purge, sizeof purge, "arena.%u.purge", arena);
    CHECK(mallctl(purge, NULL, NULL, NULL, 0) == 0);
  }
  uzswap_stats stats = {.size = sizeof stats};
  uzswap_get_stats(pool, &stats);
  CHECK(stats.peak <= params.limit && stats.refaults > 0);
  return 0;
}
