package infer

import "sync"

// crew runs requests on goroutines that are used again: a fresh one for each
// request spends more on growing its stack than on the request. One goroutine
// hands work out.
type crew struct {
	jobs chan func()
	all  sync.WaitGroup
}

func newCrew() *crew { return &crew{jobs: make(chan func())} }

// do runs the job now: on a goroutine that waits for one, else on a new one.
// How many there are is bounded by the places that jobs hold.
func (c *crew) do(job func()) {
	select {
	case c.jobs <- job:
	default:
		c.all.Go(func() {
			job()
			for job := range c.jobs {
				job()
			}
		})
	}
}

// wait ends the crew when all jobs are done.
func (c *crew) wait() {
	close(c.jobs)
	c.all.Wait()
}
