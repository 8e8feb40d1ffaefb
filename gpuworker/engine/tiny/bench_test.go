package tiny_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/weights"
)

// BenchmarkAnswers measures the shipped model on one thread, with a number of
// requests at once. It reports the tokens generated per second and per second of
// processor time.
func BenchmarkAnswers(b *testing.B) {
	for _, at := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("at=%d", at), func(b *testing.B) {
			w, err := weights.Shipped()
			if err != nil {
				b.Fatal(err)
			}
			e, err := tiny.Load(w, 1, scheduler.Config{Slots: at})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			cpu, start := cpuTime(b), time.Now()
			for b.Loop() {
				var all sync.WaitGroup
				for seed := range at {
					all.Go(func() {
						params := fmt.Sprintf(
							`"seed":%d,"max_tokens":128,"ignore_eos":true,"temperature":0.7,"top_p":0.9`, seed)
						r := enginetest.CompletionRequest("Ge1:1 In the beginning", params)
						if _, err := e.Answer(b.Context(), r, func() {}); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
			tokens := float64(e.Stats().NewTokens)
			b.ReportMetric(tokens/time.Since(start).Seconds(), "tokens/s")
			b.ReportMetric(tokens/(cpuTime(b)-cpu).Seconds(), "tokens/cpu-s")
		})
	}
}

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
