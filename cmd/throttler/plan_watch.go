package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// memoryTick is the time between two looks at the memory of a preview.
const memoryTick = 20 * time.Millisecond

// A planWatch bounds the process of a preview, whichever part of it runs. Its goroutines end with the
// process.
type planWatch struct {
	out  io.Writer
	part atomic.Value // string: the pointer of the member of the request that is at work
	once sync.Once    // the result is written
}

// begin ends the process after a time, and when it has more than so many bytes of memory.
func (w *planWatch) begin(most time.Duration, memory uint64) {
	w.part.Store(configPart) // comes first; on a slow machine a bound may be met before it is read
	time.AfterFunc(most, func() { w.exceeded(fmt.Sprintf("takes longer than %v", most)) })
	go func() {
		for range time.Tick(memoryTick) {
			if memoryInUse() > memory {
				w.exceeded(fmt.Sprintf("needs more than %d MiB", memory>>20))
			}
		}
	}()
}

// follow ends the process when its input ends: the parent holds it open, and has gone.
func (w *planWatch) follow(in io.Reader) {
	go func() {
		io.Copy(io.Discard, in)
		os.Exit(exitFailed)
	}()
}

// exceeded ends the process with a bound as the fault of the member that is at work.
func (w *planWatch) exceeded(bound string) {
	pointer, _ := w.part.Load().(string)
	smaller := "a shorter load, or fewer variants"
	if pointer == configPart {
		smaller = "a smaller configuration"
	}
	w.end(bundleResult{Faults: []api.Fault{{Pointer: pointer, Detail: fmt.Sprintf("the preview %s; give it %s, or use throttler plan", bound, smaller)}}})
}

// configPart is the pointer of the configuration of a request.
const configPart = "/config"

// end ends the process with a result. The first one counts.
func (w *planWatch) end(r bundleResult) {
	text, err := json.Marshal(r)
	w.once.Do(func() {
		if err == nil {
			_, err = w.out.Write(append(text, '\n'))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		os.Exit(0)
	})
}

// memoryInUse returns the bytes that the process has from the system.
func memoryInUse() uint64 {
	all := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(all)
	return all[0].Value.Uint64() - all[1].Value.Uint64()
}
