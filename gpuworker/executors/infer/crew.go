package infer

import "sync"

// crew runs requests on goroutines that are used again: a fresh one for each
// request spends more on growing its stack than on the request. One goroutine
// hands work out.
type crew struct {
	hands *sync.Pool // of *hand
	jobs  chan func(*hand)
	all   sync.WaitGroup
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

func newCrew(hands *sync.Pool) *crew { return &crew{hands: hands, jobs: make(chan func(*hand))} }

// do runs the job now: on a goroutine that waits for one, else on a new one.
// How many there are is bounded by the places that jobs hold.
func (c *crew) do(job func(*hand)) {
	select {
	case c.jobs <- job:
	default:
		c.all.Go(func() {
			withHand(c.hands, func(h *hand) {
				job(h)
				h.done()
				for job := range c.jobs {
					job(h)
					h.done()
				}
			})
		})
	}
}

// withHand lends a hand to f.
func withHand(hands *sync.Pool, f func(*hand)) {
	h := hands.Get().(*hand)
	defer hands.Put(h)
	defer h.watch.close()
	f(h)
}

// wait ends the crew when all jobs are done.
func (c *crew) wait() {
	close(c.jobs)
	c.all.Wait()
}
