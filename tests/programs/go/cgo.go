// Memory of the C library beside Go's, filled by threads of C's own, in a program that is linked
// with it.
package main

/*
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { PARTS = 4 };
struct part { uint32_t *words; size_t nr; };

static void *fill(void *arg) {
    struct part *part = arg;
    for (size_t i = 0; i < part->nr; i++)
        part->words[i] = i * 2654435761u;
    return NULL;
}

// 4 parts of `nr` words each; NULL without memory.
static uint32_t *fill_by_threads(size_t nr) {
    uint32_t *words = malloc(PARTS * nr * sizeof *words);
    struct part parts[PARTS];
    pthread_t threads[PARTS];
    for (int i = 0; words && i < PARTS; i++) {
        parts[i] = (struct part){words + i * nr, nr};
        if (pthread_create(threads + i, NULL, fill, parts + i))
            abort();
    }
    for (int i = 0; words && i < PARTS; i++)
        pthread_join(threads[i], NULL);
    return words;
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

func init() {
	const nr = 2 << 20
	words := C.fill_by_threads(nr)
	check = func() {
		sum := uint64(0)
		for _, word := range unsafe.Slice((*uint32)(unsafe.Pointer(words)), 4*nr) {
			sum = sum*31 + uint64(word)
		}
		C.free(unsafe.Pointer(words))
		fmt.Println("C's memory:", sum)
	}
}
