// Go as an archive in a C program: its run-time has signal handlers of its own.
package main

import "C"
import "unsafe"

// Nulls dereferences nil n times and returns how often that was recovered from.
//
//export Nulls
func Nulls(n int) (caught int) {
	for i := 0; i < n; i++ {
		func() {
			defer func() {
				if recover() != nil {
					caught++
				}
			}()
			var nothing *int
			caught += *nothing
		}()
	}
	return caught
}

// Sum adds up the bytes of a pool, on goroutines.
//
//export Sum
func Sum(at unsafe.Pointer, n int) (sum int) {
	bytes := unsafe.Slice((*byte)(at), n)
	sums := make(chan int)
	const parts = 4
	for part := 0; part < parts; part++ {
		go func(bytes []byte) {
			sum := 0
			for _, b := range bytes {
				sum += int(b)
			}
			sums <- sum
		}(bytes[n/parts*part : n/parts*(part+1)])
	}
	for part := 0; part < parts; part++ {
		sum += <-sums
	}
	return sum
}

func main() {}
