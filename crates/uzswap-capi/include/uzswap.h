/* uzswap: memory pools that hold more than their limit of RAM. Cold pages are compressed; what does
 * not fit then is written to a swap file, compressed and encrypted. What holds for threads,
 * signals, system calls and fork: docs/library.md.
 *
 * Sizes are bytes. All functions may be called from any thread, but not from signal handlers. */
#ifndef UZSWAP_H
#define UZSWAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool. */
typedef struct uzswap_pool uzswap_pool;
/* Memory that is kept in RAM. */
typedef struct uzswap_pin uzswap_pin;

/* What became of a call. uzswap_error_text() says more. */
typedef enum uzswap_result {
  UZSWAP_OK = 0,
  UZSWAP_INVALID = 1,     /* an argument makes no sense */
  UZSWAP_MANAGED = 2,     /* the process runs under 'uzswap run' */
  UZSWAP_REFUSED = 3,     /* the kernel or a sandbox refuses */
  UZSWAP_NO_MEMORY = 4,   /* the limit, or the pool's size, leaves no room */
  UZSWAP_NOT_OURS = 5,    /* the memory is not this pool's */
  UZSWAP_LOST = 6,        /* what was stored cannot be read back, or stayed with a fork's parent */
  UZSWAP_REPLACED = 7     /* the host has replaced a signal handler of the library's */
} uzswap_result;

/* How accesses to pages that are out reach the pool. */
typedef enum uzswap_fault_mode {
  UZSWAP_FAULT_AUTO = 0,
  UZSWAP_FAULT_SIGNAL = 1,
  UZSWAP_FAULT_THREAD = 2,
  UZSWAP_FAULT_SEGV = 3
} uzswap_fault_mode;

/* For uzswap_params.flags: system calls on pools are not guarded; no process keeps room free. */
#define UZSWAP_NO_GUARD 1u
#define UZSWAP_NO_BACKGROUND 2u

/* What a pool is to be like. Zero stands for the default of every field but size. */
typedef struct uzswap_params {
  size_t size;            /* sizeof(uzswap_params): later versions have more fields */
  uint64_t limit;         /* RAM at most; 1 GiB */
  uint64_t max_size;      /* allocated at most, beyond which allocations fail; no limit */
  const char *compressor; /* "lz4", "zstd[:1-22]", "deflate[:1-12]", "pz", "auto"; lz4 */
  const char *swap;       /* "auto", "none", a directory, or a file or block device; auto */
  uint64_t swap_max;      /* swap at most; half of what is free on the disk */
  uint32_t fault_mode;    /* uzswap_fault_mode */
  uint32_t flags;         /* UZSWAP_NO_... */
} uzswap_params;

#define UZSWAP_PARAMS_INIT {sizeof(uzswap_params), 0, 0, NULL, NULL, 0, 0, 0}

/* What a pool has. As many bytes are written as size says; the caller sets it. */
typedef struct uzswap_stats {
  size_t size;
  uint64_t limit;
  uint64_t used;       /* RAM charged to the limit */
  uint64_t peak;       /* the most that was used */
  uint64_t mapped;     /* allocated, in RAM or out of it */
  uint64_t resident;   /* of that, in RAM as it is */
  uint64_t stored;     /* of that, held compressed */
  uint64_t compressed; /* RAM that the compressed takes */
  uint64_t swapped;    /* on the swap device */
  uint64_t metadata;   /* the engine's tables */
  uint64_t faults;     /* served */
  uint64_t refaults;   /* of these, on pages that had been evicted */
} uzswap_stats;

/* Builds a pool. */
uzswap_result uzswap_pool_create(const uzswap_params *params, uzswap_pool **pool);
/* Ends a pool. Nothing of it may be used any more, and no pin may be left. */
void uzswap_pool_destroy(uzswap_pool *pool);

/* As malloc(3) and its like, with an alignment of 16. NULL: there is no room; the text says why. */
void *uzswap_malloc(uzswap_pool *pool, size_t size);
void *uzswap_calloc(uzswap_pool *pool, size_t count, size_t size);
void *uzswap_realloc(uzswap_pool *pool, void *memory, size_t size);
void uzswap_free(uzswap_pool *pool, void *memory);
size_t uzswap_usable_size(uzswap_pool *pool, const void *memory);
/* With any alignment, a power of two; freed with the same size and alignment. */
void *uzswap_aligned_alloc(uzswap_pool *pool, size_t alignment, size_t size);
void uzswap_aligned_free(uzswap_pool *pool, void *memory, size_t alignment, size_t size);

/* Whole pages of 4 KiB, zero, for allocators: aligned as asked; given back also in parts. */
void *uzswap_map(uzswap_pool *pool, size_t size, size_t alignment);
void uzswap_unmap(uzswap_pool *pool, void *memory, size_t size);
/* Makes whole pages of it read as zero, and frees what they took. */
void uzswap_discard(uzswap_pool *pool, void *memory, size_t size);

/* Hints: next to be evicted; evicted now; brought in now. */
uzswap_result uzswap_cold(uzswap_pool *pool, const void *memory, size_t size);
uzswap_result uzswap_evict(uzswap_pool *pool, const void *memory, size_t size);
uzswap_result uzswap_prefetch(uzswap_pool *pool, const void *memory, size_t size);
/* Keeps memory in RAM until uzswap_unpin(): for calls that the guard does not serve. */
uzswap_result uzswap_pin_memory(uzswap_pool *pool, const void *memory, size_t size,
                                uzswap_pin **pin);
void uzswap_unpin(uzswap_pin *pin);

/* The limit; a change returns when the pool is within it, or leaves it as it was. */
uint64_t uzswap_limit(uzswap_pool *pool);
uzswap_result uzswap_set_limit(uzswap_pool *pool, uint64_t limit);
/* Evicts so much, the coldest first. Returns how much it was. */
uint64_t uzswap_reclaim(uzswap_pool *pool, uint64_t size);
uzswap_result uzswap_get_stats(uzswap_pool *pool, uzswap_stats *stats);
bool uzswap_contains(uzswap_pool *pool, const void *memory);
uzswap_fault_mode uzswap_fault_mode_of(uzswap_pool *pool);

/* Whether faults arrive: UZSWAP_REPLACED if the host has replaced a signal handler. */
uzswap_result uzswap_check_handlers(void);
uzswap_result uzswap_reinstall_handlers(void);
/* Takes the library's signals out of this thread's mask. */
void uzswap_unblock_signals(void);
/* Whether the process runs under 'uzswap run', so that all its memory is managed already. */
bool uzswap_is_managed(void);

/* What a result means, and what the last call of this thread that failed had to say. */
const char *uzswap_result_text(uzswap_result result);
const char *uzswap_error_text(void);

#ifdef __cplusplus
}
#endif

#endif
