package infer

import (
	"sync"

	"rollout/shared/dialect"
)

// requesters is a pool of goroutines that make requests. They are reused, from
// shard to shard as long as one is being answered: the stack of a fresh
// goroutine grows at a higher cost than the rest of a small request.
type requesters struct {
	scratches sync.Pool // of *scratch

	mu     sync.Mutex
	rounds int
	jobs   chan job // nil outside of rounds
}

// round is the requests of one shard. One goroutine calls do and end.
type round struct {
	requesters *requesters
	jobs       chan<- job
	open       sync.WaitGroup // of its jobs
}

// job is one request.
type job struct {
	run func(*scratch)
	of  *round
}

// scratch is the memory that a goroutine reuses for its requests.
type scratch struct {
	dialect.Buffers        // of requests
	row             []byte // being made
	watchdog        *watchdog
}

func newScratch() any { return &scratch{watchdog: newWatchdog()} }

// maxKept bounds the bytes that a scratch keeps between requests, for each
// buffer.
const maxKept = 64 << 10

// trim drops buffers that only an unusually large request needed.
func (sc *scratch) trim() {
	if cap(sc.Body) > maxKept {
		sc.Body = nil
	}
	if cap(sc.row) > maxKept {
		sc.row = nil
	}
	if cap(sc.Applied) > maxKept {
		sc.Applied = nil
	}
}

func newRequesters() *requesters { return &requesters{scratches: sync.Pool{New: newScratch}} }

// begin begins a round.
func (r *requesters) begin() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds++; r.rounds == 1 {
		r.jobs = make(chan job)
	}
	return &round{requesters: r, jobs: r.jobs}
}

// do runs the request at once: on an idle goroutine, or on a new one. The slots
// that requests hold bound the number of goroutines.
func (n *round) do(request func(*scratch)) {
	n.open.Add(1)
	j := job{request, n}
	select {
	case n.jobs <- j:
	default:
		n.requesters.spawn(j)
	}
}

// end waits for the round's requests. The end of the last round ends the
// goroutines.
func (n *round) end() {
	n.open.Wait()
	r := n.requesters
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds--; r.rounds == 0 {
		close(r.jobs)
		r.jobs = nil
	}
}

// spawn starts a goroutine that runs the job, then further ones.
func (r *requesters) spawn(first job) {
	r.mu.Lock()
	jobs := r.jobs
	r.mu.Unlock()
	go r.withScratch(func(sc *scratch) {
		sc.run(first)
		for j := range jobs {
			sc.run(j)
		}
	})
}

func (sc *scratch) run(j job) {
	defer j.of.open.Done()
	j.run(sc)
	sc.trim()
}

// withScratch calls f with a scratch from the pool.
func (r *requesters) withScratch(f func(*scratch)) {
	sc := r.scratches.Get().(*scratch)
	defer r.scratches.Put(sc)
	defer sc.watchdog.close()
	f(sc)
}
