package infer

import "sync"

// requesters runs requests on goroutines that are used again, also from shard to
// shard as long as there is one: a fresh one for each request spends more on
// growing its stack than on the request.
type requesters struct {
	scratches sync.Pool // of *hand

	mu     sync.Mutex
	rounds int
	jobs   chan job // nil if nobody is at work
}

// round is one shard's work for the crew. One goroutine hands it out.
type round struct {
	requesters *requesters
	jobs       chan<- job
	open       sync.WaitGroup // of its jobs
}

// job is one request.
type job struct {
	do func(*scratch)
	of *round
}

// scratch is what a goroutine uses again for each of its requests.
type scratch struct {
	body, row []byte // being made
	watch     *watchdog
}

func newScratch() any { return &scratch{watch: newWatchdog()} }

// maxKept bounds the memory that one hand keeps between requests.
const maxKept = 64 << 10

// done lets go of what only an uncommon request needed.
func (h *scratch) done() {
	if cap(h.body) > maxKept {
		h.body = nil
	}
	if cap(h.row) > maxKept {
		h.row = nil
	}
}

func newRequesters() *requesters { return &requesters{scratches: sync.Pool{New: newScratch}} }

// begin starts a shift.
func (c *requesters) begin() *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rounds++; c.rounds == 1 {
		c.jobs = make(chan job)
	}
	return &round{requesters: c, jobs: c.jobs}
}

// do runs the request now: on a goroutine that waits for one, else on a new
// one. How many there are is bounded by the places that requests hold.
func (s *round) do(request func(*scratch)) {
	s.open.Add(1)
	j := job{request, s}
	select {
	case s.jobs <- j:
	default:
		s.requesters.spawn(j)
	}
}

// end waits for the shift's requests. The last shift's end is that of the
// goroutines.
func (s *round) end() {
	s.open.Wait()
	c := s.requesters
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rounds--; c.rounds == 0 {
		close(c.jobs)
		c.jobs = nil
	}
}

// spawn runs the job and those that come, on a new goroutine.
func (c *requesters) spawn(first job) {
	c.mu.Lock()
	jobs := c.jobs
	c.mu.Unlock()
	go c.with(func(h *scratch) {
		h.run(first)
		for j := range jobs {
			h.run(j)
		}
	})
}

func (h *scratch) run(j job) {
	defer j.of.open.Done()
	j.do(h)
	h.done()
}

// with lends a hand to f.
func (c *requesters) with(f func(*scratch)) {
	h := c.scratches.Get().(*scratch)
	defer c.scratches.Put(h)
	defer h.watch.close()
	f(h)
}
