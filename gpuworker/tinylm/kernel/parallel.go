package kernel

import (
	"sync"
	"sync/atomic"
)

// Parallel calls f(0) to f(n-1), each once, on up to threads goroutines, and
// returns when all have. Which goroutine calls which is left to chance: the
// calls must write to places of their own. thread, below threads, names the
// goroutine, for scratch.
func Parallel(threads, n int, f func(thread, i int)) {
	threads = min(threads, n)
	if threads <= 1 {
		for i := range n {
			f(0, i)
		}
		return
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	work := func(thread int) {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			f(thread, i)
		}
	}
	for t := 1; t < threads; t++ {
		wait.Go(func() { work(t) })
	}
	work(0)
	wait.Wait()
}
