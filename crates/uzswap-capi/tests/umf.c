/* A pool as UMF's memory provider, by itself and under UMF's disjoint pool. */
#include <stdio.h>
#include <string.h>
#include <umf.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/pools/pool_disjoint.h>
#include <uzswap_umf.h>

#define CHECK(holds)                                                                               \
  if (!(holds)) {                                                                                  \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #holds, uzswap_error_text());                   \
    return 1;                                                                                      \
  }

int main(void) {
  uzswap_params params = UZSWAP_PARAMS_INIT;
  uzswap_pool *pool;
  params.limit = 16 << 20;
  params.max_size = 256 << 20;
  CHECK(uzswap_pool_create(&params, &pool) == UZSWAP_OK);
  umf_memory_provider_handle_t provider;
  CHECK(umfMemoryProviderCreate(uzswap_umf_provider_ops(), pool, &provider) == UMF_RESULT_SUCCESS);
  unsigned char *memory;
  size_t len = 48 << 20;
  CHECK(umfMemoryProviderAlloc(provider, len, 2 << 20, (void **)&memory) == UMF_RESULT_SUCCESS);
  CHECK((size_t)memory % (2 << 20) == 0 && uzswap_contains(pool, memory));
  for (size_t n = 0; n < len; n += 4096)
    memset(memory + n, (int)(n / 4096 % 251), 4096);
  for (size_t n = 0; n < len; n += 4096)
    CHECK(memory[n + 99] == n / 4096 % 251);
  CHECK(umfMemoryProviderPurgeForce(provider, memory, 1 << 20) == UMF_RESULT_SUCCESS);
  CHECK(memory[5000] == 0 && memory[(1 << 20) + 5000] != 0);
  CHECK(umfMemoryProviderAllocationSplit(provider, memory, len, 16 << 20) == UMF_RESULT_SUCCESS);
  CHECK(umfMemoryProviderFree(provider, memory, 16 << 20) == UMF_RESULT_SUCCESS);
  CHECK(umfMemoryProviderFree(provider, memory + (16 << 20), 32 << 20) == UMF_RESULT_SUCCESS);
  void *too_large;
  CHECK(umfMemoryProviderAlloc(provider, (size_t)1 << 30, 4096, &too_large) != UMF_RESULT_SUCCESS);

  umf_disjoint_pool_params_handle_t how;
  umf_memory_pool_handle_t objects;
  CHECK(umfDisjointPoolParamsCreate(&how) == UMF_RESULT_SUCCESS);
  CHECK(umfPoolCreate(umfDisjointPoolOps(), provider, how, 0, &objects) == UMF_RESULT_SUCCESS);
  enum { NR = 10000 };
  static unsigned char *all[NR];
  for (int n = 0; n < NR; n++) {
    CHECK((all[n] = umfPoolMalloc(objects, (size_t)n % 5000 + 1)) != NULL);
    memset(all[n], n % 251, (size_t)n % 5000 + 1);
  }
  for (int n = 0; n < NR; n++) {
    CHECK(all[n][n % 5000] == n % 251);
    umfPoolFree(objects, all[n]);
  }
  umfPoolDestroy(objects);
  umfDisjointPoolParamsDestroy(how);
  umfMemoryProviderDestroy(provider);
  uzswap_stats stats = {.size = sizeof stats};
  uzswap_get_stats(pool, &stats);
  CHECK(stats.peak <= params.limit && stats.refaults > 0 && stats.mapped == 0);
  uzswap_pool_destroy(pool);
  return 0;
}
