package infer

import "sync"

// crew runs requests on goroutines that are used again, also from shard to
// shard as long as there is one: a fresh one for each request spends more on
// growing its stack than on the request.
type crew struct {
	hands sync.Pool // of *hand

	mu     sync.Mutex
	shifts int
	jobs   chan job // nil if nobody is at work
}

// shift is one shard's work for the crew. One goroutine hands it out.
type shift struct {
	crew *crew
	jobs chan<- job
	open sync.WaitGroup // of its jobs
}

// job is one request.
type job struct {
	do func(*hand)
	of *shift
}

// hand is what a goroutine uses again for each of its requests.
type hand struct {
	body, row []byte // being made
	watch     *watch
}

func newHand() any { return &hand{watch: newWatch()} }

// maxKept bounds the memory that one hand keeps between requests.
const maxKept = 64 << 10

// done lets go of what only an uncommon request needed.
func (h *hand) done() {
	if cap(h.body) > maxKept {
		h.body = nil
	}
	if cap(h.row) > maxKept {
		h.row = nil
	}
}

func newCrew() *crew { return &crew{hands: sync.Pool{New: newHand}} }

// begin starts a shift.
func (c *crew) begin() *shift {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shifts++; c.shifts == 1 {
		c.jobs = make(chan job)
	}
	return &shift{crew: c, jobs: c.jobs}
}

// do runs the request now: on a goroutine that waits for one, else on a new
// one. How many there are is bounded by the places that requests hold.
func (s *shift) do(request func(*hand)) {
	s.open.Add(1)
	j := job{request, s}
	select {
	case s.jobs <- j:
	default:
		s.crew.hire(j)
	}
}

// end waits for the shift's requests. The last shift's end is that of the
// goroutines.
func (s *shift) end() {
	s.open.Wait()
	c := s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shifts--; c.shifts == 0 {
		close(c.jobs)
		c.jobs = nil
	}
}

// hire runs the job and those that come, on a new goroutine.
func (c *crew) hire(first job) {
	c.mu.Lock()
	jobs := c.jobs
	c.mu.Unlock()
	go c.with(func(h *hand) {
		h.run(first)
		for j := range jobs {
			h.run(j)
		}
	})
}

func (h *hand) run(j job) {
	defer j.of.open.Done()
	j.do(h)
	h.done()
}

// with lends a hand to f.
func (c *crew) with(f func(*hand)) {
	h := c.hands.Get().(*hand)
	defer c.hands.Put(h)
	defer h.watch.close()
	f(h)
}
