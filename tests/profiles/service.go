package main

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"
)

var kept [][]byte
var mu sync.Mutex
var sink int

func hash(text string) int {
	sum := 0
	for round := 0; round < 4000; round++ {
		for _, c := range text {
			sum = sum*31 + int(c)
		}
	}
	return sum
}

func handle(route string) {
	mu.Lock()
	defer mu.Unlock()
	sink += hash(strings.Repeat(route, 8))
	kept = append(kept, make([]byte, 64<<10))
}

func serve(until time.Time) {
	var wait sync.WaitGroup
	for _, route := range []string{"/cart", "/pay", "/search"} {
		wait.Add(1)
		go pprof.Do(context.Background(), pprof.Labels("route", route, "trace_id", "0af7651916cd43dd8448eb211c80319c", "span_id", "b7ad6b7169203331"), func(context.Context) {
			defer wait.Done()
			for time.Now().Before(until) {
				handle(route)
				runtime.Gosched()
			}
		})
	}
	wait.Wait()
}

func main() {
	runtime.MemProfileRate = 256 << 10
	runtime.SetMutexProfileFraction(1)
	file := func(name string) *os.File {
		f, err := os.Create(name)
		if err != nil {
			panic(err)
		}
		return f
	}
	cpu := file("cpu.pb.gz")
	pprof.StartCPUProfile(cpu)
	serve(time.Now().Add(1200 * time.Millisecond))
	pprof.StopCPUProfile()
	cpu.Close()
	for _, name := range []string{"heap", "mutex", "goroutine"} {
		f := file(name + ".pb.gz")
		pprof.Lookup(name).WriteTo(f, 0)
		f.Close()
	}
}
