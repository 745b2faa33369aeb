/* uzswap for oneAPI's Unified Memory Framework, 1.0 and later: a pool as memory provider.
 *
 *   umfMemoryProviderCreate(uzswap_umf_provider_ops(), pool, &provider)
 *
 * The pool must outlive the provider. */
#ifndef UZSWAP_UMF_H
#define UZSWAP_UMF_H

#include <string.h>
#include <umf/memory_provider_ops.h>

#include "uzswap.h"

static inline umf_result_t uzswap_umf_initialize(const void *pool, void **provider) {
  if (pool == NULL)
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
  *provider = (void *)pool;
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_finalize(void *provider) {
  (void)provider;
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_alloc(void *provider, size_t size, size_t alignment,
                                            void **memory) {
  *memory = uzswap_map((uzswap_pool *)provider, size, alignment);
  return *memory != NULL ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
}

static inline umf_result_t uzswap_umf_free(void *provider, void *memory, size_t size) {
  if (memory != NULL)
    uzswap_unmap((uzswap_pool *)provider, memory, size);
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_error(void *provider, const char **text, int32_t *code) {
  (void)provider;
  *text = uzswap_error_text();
  *code = UZSWAP_NO_MEMORY;
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_page(void *provider, const void *memory, size_t *size) {
  (void)provider, (void)memory;
  *size = 4096;
  return UMF_RESULT_SUCCESS;
}

/* Folios are of 128 KiB. */
static inline umf_result_t uzswap_umf_good_page(void *provider, size_t wanted, size_t *size) {
  (void)provider, (void)wanted;
  *size = 128 << 10;
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_name(void *provider, const char **name) {
  (void)provider;
  *name = "uzswap";
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_purge(void *provider, void *memory, size_t size) {
  if (((size_t)memory | size) % 4096 != 0)
    return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
  uzswap_discard((uzswap_pool *)provider, memory, size);
  return UMF_RESULT_SUCCESS;
}

#if UMF_PROVIDER_OPS_VERSION_CURRENT >= UMF_MAKE_VERSION(1, 2)
static inline umf_result_t uzswap_umf_cache_line(void *provider, size_t *size) {
  (void)provider;
  *size = 64;
  return UMF_RESULT_SUCCESS;
}
#endif

/* A pool's pages may be split and merged anywhere. */
static inline umf_result_t uzswap_umf_split(void *provider, void *memory, size_t size,
                                            size_t first) {
  (void)provider, (void)memory, (void)size, (void)first;
  return UMF_RESULT_SUCCESS;
}

static inline umf_result_t uzswap_umf_merge(void *provider, void *low, void *high, size_t size) {
  (void)provider, (void)low, (void)high, (void)size;
  return UMF_RESULT_SUCCESS;
}

static inline const umf_memory_provider_ops_t *uzswap_umf_provider_ops(void) {
  static umf_memory_provider_ops_t ops;
  memset(&ops, 0, sizeof ops);
  ops.version = UMF_PROVIDER_OPS_VERSION_CURRENT;
  ops.initialize = uzswap_umf_initialize;
  ops.finalize = uzswap_umf_finalize;
  ops.alloc = uzswap_umf_alloc;
  ops.free = uzswap_umf_free;
  ops.get_last_native_error = uzswap_umf_error;
  ops.get_recommended_page_size = uzswap_umf_good_page;
  ops.get_min_page_size = uzswap_umf_page;
  ops.get_name = uzswap_umf_name;
  ops.ext_purge_lazy = uzswap_umf_purge;
  ops.ext_purge_force = uzswap_umf_purge;
  ops.ext_allocation_split = uzswap_umf_split;
  ops.ext_allocation_merge = uzswap_umf_merge;
#if UMF_PROVIDER_OPS_VERSION_CURRENT >= UMF_MAKE_VERSION(1, 2)
  ops.get_cache_line_size = uzswap_umf_cache_line;
#endif
  return &ops;
}

#endif
