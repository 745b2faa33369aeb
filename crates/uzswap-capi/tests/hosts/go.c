/* Go code in the same process: its run-time has installed its signal handlers before main. */
#include "archive.h"
#include <stdio.h>
#include <string.h>
#include <uzswap.h>

#define CHECK(holds)                                                                               \
  if (!(holds)) {                                                                                  \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #holds, uzswap_error_text());                   \
    return 1;                                                                                      \
  }

int main(int argc, char **argv) {
  enum { LEN = 48 << 20 };
  uzswap_params params = UZSWAP_PARAMS_INIT;
  uzswap_pool *pool;
  unsigned char *bytes;
  long long right = 0;
  CHECK(argc == 2);
  params.limit = 16 << 20;
  params.fault_mode = strcmp(argv[1], "segv") == 0 ? UZSWAP_FAULT_SEGV : UZSWAP_FAULT_SIGNAL;
  CHECK(Nulls(10) == 10);
  CHECK(uzswap_pool_create(&params, &pool) == UZSWAP_OK);
  CHECK((bytes = uzswap_malloc(pool, LEN)) != NULL);
  for (int n = 0; n < LEN; n++)
    right += bytes[n] = (unsigned char)(n / 4096 % 100);
  for (int round = 0; round < 3; round++) {
    CHECK(Nulls(1000) == 1000);
    CHECK(Sum(bytes, LEN) == right);
  }
  CHECK(uzswap_check_handlers() == UZSWAP_OK);
  return 0;
}
