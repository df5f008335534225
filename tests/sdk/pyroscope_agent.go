// A program under load for some seconds, with Pyroscope's agent: pyroscope_agent URL.
package main

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/grafana/pyroscope-go"
)

var kept [][]byte

func work() int {
	total := 0
	for number := 0; number < 1000000; number++ {
		total += number * number
	}
	kept = append(kept, make([]byte, 64<<10))
	if len(kept) > 500 {
		kept = nil
	}
	return total
}

func main() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "shop.go",
		ServerAddress:   os.Args[1],
		Tags:            map[string]string{"region": "eu"},
		TenantID:        "team-a",
		UploadRate:      2 * time.Second,
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileAllocSpace, pyroscope.ProfileInuseSpace,
			pyroscope.ProfileGoroutines, pyroscope.ProfileMutexDuration, pyroscope.ProfileBlockDuration,
		},
	})
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	go func() {
		for {
			lock.Lock()
			time.Sleep(time.Millisecond)
			lock.Unlock()
		}
	}()
	end := time.Now().Add(6 * time.Second)
	pyroscope.TagWrapper(context.Background(), pyroscope.Labels("route", "/cart"), func(context.Context) {
		for time.Now().Before(end) {
			lock.Lock()
			work()
			lock.Unlock()
		}
	})
	profiler.Stop()
}
