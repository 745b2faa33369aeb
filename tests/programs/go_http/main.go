// go_http MIB: an HTTP server that keeps MIB MiB of records, and sixteen clients that ask it for
// them over TCP, while signals come and the collector runs. Says what all answers add up to, which
// is the same each time.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	recordLen = 16 << 10
	clients   = 16
	requests  = 150
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// Compresses about three to one.
func record(n int) []byte {
	r := make([]byte, recordLen)
	for at := 0; at < recordLen; at += 96 {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(n*recordLen+at)))
		copy(r[at:], sum[:])
	}
	return r
}

func main() {
	mib, err := strconv.Atoi(os.Args[1])
	must(err)
	records := make([][]byte, mib<<20/recordLen)
	for n := range records {
		records[n] = record(n)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Path[1:])
		must(err)
		w.Write(records[n%len(records)])
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go http.Serve(listener, nil)

	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				syscall.Kill(os.Getpid(), syscall.SIGURG)
			}
		}
	}()
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				time.Sleep(50 * time.Millisecond)
			}
		}
	}()

	var sum atomic.Uint64
	var all sync.WaitGroup
	for c := 0; c < clients; c++ {
		all.Add(1)
		go func(c int) {
			defer all.Done()
			client := &http.Client{Transport: &http.Transport{}}
			for i := 0; i < requests; i++ {
				n := (c*requests + i) * 7919 % len(records)
				response, err := client.Get(fmt.Sprintf("http://%s/%d", listener.Addr(), n))
				must(err)
				body, err := io.ReadAll(response.Body)
				must(err)
				response.Body.Close()
				if len(body) != recordLen {
					must(fmt.Errorf("%d bytes", len(body)))
				}
				digest := sha256.Sum256(body)
				sum.Add(binary.LittleEndian.Uint64(digest[:]))
			}
		}(c)
	}
	all.Wait()
	close(stop)
	fmt.Printf("%d answers add up to %x\n", clients*requests, sum.Load())
}
