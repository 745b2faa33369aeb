/* Each function of the header once or more, with arguments that make sense and that do not. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uzswap.h>

#undef NDEBUG
#define check(what)                                                                                \
  do {                                                                                             \
    if (!(what)) {                                                                                 \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, uzswap_error_text());                  \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static void wrong_arguments(void) {
  uzswap_params params = UZSWAP_PARAMS_INIT;
  uzswap_pool *pool = NULL;
  check(uzswap_pool_create(NULL, &pool) == UZSWAP_INVALID);
  check(uzswap_pool_create(&params, NULL) == UZSWAP_INVALID);
  params.limit = 4096;
  check(uzswap_pool_create(&params, &pool) == UZSWAP_INVALID);
  check(strstr(uzswap_error_text(), "4 KiB") != NULL);
  params.limit = 16 << 20;
  params.compressor = "gzip";
  check(uzswap_pool_create(&params, &pool) == UZSWAP_INVALID);
  params.compressor = "zstd:3";
  params.swap = "/nonexistent/place";
  check(uzswap_pool_create(&params, &pool) == UZSWAP_REFUSED);
  params.swap = "none";
  params.flags = 1u << 31;
  check(uzswap_pool_create(&params, &pool) == UZSWAP_INVALID);
  params.flags = 0;
  params.fault_mode = 9;
  check(uzswap_pool_create(&params, &pool) == UZSWAP_INVALID);
  params.size = 0;
  check(uzswap_pool_create(&params, &pool) == UZSWAP_INVALID);
  check(uzswap_malloc(NULL, 1) == NULL && uzswap_limit(NULL) == 0);
  uzswap_free(NULL, NULL);
  uzswap_pool_destroy(NULL);
  uzswap_unpin(NULL);
}

static void memory(uzswap_pool *pool) {
  for (size_t size = 1; size < 1 << 20; size = size * 3 + 1) {
    unsigned char *block = uzswap_calloc(pool, 1, size);
    check(block != NULL && (size_t)block % 16 == 0 && uzswap_contains(pool, block));
    check(uzswap_usable_size(pool, block) >= size);
    for (size_t n = 0; n < size; n++)
      check(block[n] == 0);
    memset(block, 7, size);
    block = uzswap_realloc(pool, block, size * 5);
    check(block != NULL && block[0] == 7 && block[size - 1] == 7);
    memset(block, 8, size * 5);
    block = uzswap_realloc(pool, block, size / 2 + 1);
    check(block != NULL && block[0] == 8 && block[size / 2] == 8);
    uzswap_free(pool, block);
  }
  char *aligned = uzswap_aligned_alloc(pool, 1 << 21, 100000);
  check(aligned != NULL && (size_t)aligned % (1 << 21) == 0);
  uzswap_aligned_free(pool, aligned, 1 << 21, 100000);
  check(uzswap_aligned_alloc(pool, 3, 100) == NULL);
  check(uzswap_calloc(pool, (size_t)-1, 2) == NULL);
  check(uzswap_malloc(pool, (size_t)1 << 40) == NULL);
  check(strstr(uzswap_error_text(), "no room") != NULL);
  check(!uzswap_contains(pool, &pool));
  char *pages = uzswap_map(pool, 3 << 20, 1 << 20);
  check(pages != NULL && (size_t)pages % (1 << 20) == 0 && pages[(3 << 20) - 1] == 0);
  memset(pages, 7, 3 << 20);
  uzswap_unmap(pool, pages + (1 << 20), 1 << 20);
  uzswap_discard(pool, pages, 8192);
  check(pages[8191] == 0 && pages[8192] == 7 && pages[(3 << 20) - 1] == 7);
  uzswap_unmap(pool, pages, 1 << 20);
  uzswap_unmap(pool, pages + (2 << 20), 1 << 20);
  check(uzswap_map(pool, 1, 3) == NULL);
}

static void hints(uzswap_pool *pool) {
  const size_t size = 4 << 20;
  char *block = uzswap_malloc(pool, size);
  check(block != NULL);
  memset(block, 5, size);
  check(uzswap_cold(pool, block, size) == UZSWAP_OK);
  check(uzswap_evict(pool, block, size) == UZSWAP_OK);
  check(uzswap_prefetch(pool, block, size) == UZSWAP_OK);
  uzswap_pin *pin = NULL;
  check(uzswap_pin_memory(pool, block, size, &pin) == UZSWAP_OK && pin != NULL);
  uzswap_unpin(pin);
  check(uzswap_pin_memory(pool, &pin, 8, &pin) == UZSWAP_NOT_OURS);
  check(uzswap_evict(pool, NULL, 8) == UZSWAP_INVALID);
  FILE *null = fopen("/dev/null", "w");
  uzswap_evict(pool, block, size);
  check(null != NULL && fwrite(block, 1, size, null) == size);
  fclose(null);
  uzswap_free(pool, block);
}

int main(void) {
  wrong_arguments();
  uzswap_params params = UZSWAP_PARAMS_INIT;
  params.limit = 16 << 20;
  params.swap = "none";
#ifdef __SANITIZE_ADDRESS__
  /* The sanitizer's shadow memory lies where the guard issues calls. */
  params.flags = UZSWAP_NO_GUARD;
#endif
  uzswap_pool *pool = NULL;
  check(uzswap_pool_create(&params, &pool) == UZSWAP_OK);
  check(uzswap_fault_mode_of(pool) != UZSWAP_FAULT_AUTO);
  memory(pool);
  hints(pool);
  check(uzswap_limit(pool) == 16 << 20);
  check(uzswap_set_limit(pool, 32 << 20) == UZSWAP_OK && uzswap_limit(pool) == 32 << 20);
  check(uzswap_set_limit(pool, 1) == UZSWAP_INVALID);
  uzswap_reclaim(pool, 1 << 20);
  uzswap_stats stats = {.size = sizeof stats};
  check(uzswap_get_stats(pool, &stats) == UZSWAP_OK && stats.limit == 32 << 20);
  check(stats.faults > 0 && stats.peak <= 32 << 20 && stats.size == sizeof stats);
  uzswap_stats old = {.size = offsetof(uzswap_stats, peak)};
  old.peak = 77;
  check(uzswap_get_stats(pool, &old) == UZSWAP_OK && old.used == stats.used && old.peak == 77);
  check(uzswap_check_handlers() == UZSWAP_OK && uzswap_reinstall_handlers() == UZSWAP_OK);
  uzswap_unblock_signals();
  check(!uzswap_is_managed());
  for (int n = UZSWAP_OK; n <= UZSWAP_REPLACED; n++)
    check(strcmp(uzswap_result_text((uzswap_result)n), "unknown") != 0);
  uzswap_pool_destroy(pool);
  return 0;
}
