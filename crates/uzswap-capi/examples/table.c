/* A table of four times the limit.  cc table.c $(pkg-config --cflags --libs uzswap) */
#include <inttypes.h>
#include <stdio.h>
#include <uzswap.h>

int main(void) {
  uzswap_params params = UZSWAP_PARAMS_INIT;
  uzswap_pool *pool;
  params.limit = 32 << 20;
  if (uzswap_pool_create(&params, &pool) != UZSWAP_OK) {
    fprintf(stderr, "%s\n", uzswap_error_text());
    return 1;
  }
  size_t count = 4 * params.limit / sizeof(uint64_t);
  uint64_t *table = uzswap_malloc(pool, count * sizeof *table);
  if (table == NULL) {
    fprintf(stderr, "%s\n", uzswap_error_text());
    return 1;
  }
  for (size_t n = 0; n < count; n++)
    table[n] = n * n % 1000;
  for (size_t n = 0; n < count; n += 1001)
    if (table[n] != n * n % 1000)
      return 2;
  uzswap_stats stats = {.size = sizeof stats};
  uzswap_get_stats(pool, &stats);
  printf("%" PRIu64 " bytes in %" PRIu64 " of RAM\n", stats.mapped, stats.peak);
  uzswap_free(pool, table);
  uzswap_pool_destroy(pool);
  return stats.peak <= params.limit ? 0 : 3;
}
