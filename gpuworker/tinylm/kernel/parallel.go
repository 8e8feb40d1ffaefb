package kernel

import (
	"sync"
	"sync/atomic"
)

// Parallel calls f once for each i from 0 to n-1, on up to threads goroutines,
// and returns after all calls have returned. The assignment of calls to
// goroutines varies, so each call must write only to memory that no other call
// uses. thread is the goroutine's number, from 0 to threads-1; f may use it to
// select scratch memory.
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
