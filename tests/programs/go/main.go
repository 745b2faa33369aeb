// go MIB: fills MIB MiB with linked records from four goroutines, checks them, collects garbage,
// takes signals meanwhile, runs a child, writes to and reads from files and a socket. Says what it
// found, which is the same each time.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// What a program that is linked with the C library checks at its end.
var check = func() {}

type record struct {
	next  *record
	value uint64
	rest  [496]byte
}

func fill(count int, seed uint64) uint64 {
	var head *record
	for i := 0; i < count; i++ {
		head = &record{next: head, value: uint64(i) * seed}
		head.rest[i%496] = byte(i)
	}
	runtime.GC()
	sum := uint64(0)
	for r := head; r != nil; r = r.next {
		sum = sum*31 + r.value
		for _, b := range r.rest {
			sum += uint64(b)
		}
	}
	return sum
}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func echo(data []byte) []byte {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		c, err := listener.Accept()
		must(err)
		io.Copy(c, c)
		c.Close()
	}()
	c, err := net.Dial("tcp", listener.Addr().String())
	must(err)
	go func() {
		_, err := c.Write(data)
		must(err)
		c.(*net.TCPConn).CloseWrite()
	}()
	back, err := io.ReadAll(c)
	must(err)
	return back
}

func main() {
	mib, err := strconv.Atoi(os.Args[1])
	must(err)
	var taken atomic.Int64
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			taken.Add(1)
		}
	}()
	var wait sync.WaitGroup
	sums := make([]uint64, 4)
	for n := range sums {
		wait.Add(1)
		go func(n int) {
			defer wait.Done()
			sums[n] = fill(mib*2048/4, uint64(n+1))
		}(n)
	}
	for i := 0; i < 50; i++ {
		must(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		runtime.Gosched()
	}
	wait.Wait()
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	fmt.Println("sums", sums)
	fmt.Println("over a socket", bytes.Equal(echo(data), data))
	command := exec.Command("sort")
	command.Stdin = bytes.NewReader([]byte("b\na\n"))
	out, err := command.Output()
	must(err)
	fmt.Printf("sorted %q, signals %v\n", out, taken.Load() > 0)
	check()
}
