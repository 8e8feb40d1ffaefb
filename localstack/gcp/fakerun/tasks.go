package fakerun

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// grace is the time between SIGTERM and SIGKILL.
const grace = 10 * time.Second

// MakeJob makes a job, by its full name: projects/P/locations/R/jobs/J.
func (s *Server) MakeJob(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[name] = &job{name: name}
}

// SetCapacity lets at most so many tasks run at once; negative is any number. Others wait,
// and their executions show why.
func (s *Server) SetCapacity(tasks int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity, s.waiting = tasks, why
	s.schedule()
}

// Refuse makes the next runs be refused, one each.
func (s *Server) Refuse(refusals ...Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = append(s.refusals, refusals...)
}

// RefuseAll makes every run be refused until nil is given.
func (s *Server) RefuseAll(f *Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuseAll = f
}

// LoseReply makes the next run be performed, and its answer be lost.
func (s *Server) LoseReply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseReply = true
}

// Requests returns how often each method was called: run, list and cancel.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// Tasks counts the tasks of all executions by their state: waiting, running, succeeded,
// failed and cancelled.
func (s *Server) Tasks() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, j := range s.jobs {
		for _, e := range j.executions {
			for _, t := range e.tasks {
				out[string(t.state)]++
			}
		}
	}
	return out
}

// End ends all running tasks, as if their programs ended. If message is not empty, they
// fail, and their executions show it.
func (s *Server) End(message string) {
	s.each(func(e *execution, t *task) {
		if t.state == running {
			s.end(e, t, message == "", message)
		}
	})
}

// CancelAll cancels all executions, as a person may.
func (s *Server) CancelAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		for _, e := range j.executions {
			if e.ended.IsZero() {
				s.cancel(e)
			}
		}
	}
}

// TerminateOne sends SIGTERM to the program of a running task, and SIGKILL 10 s later, as
// Cloud Run does for maintenance or at the end of the task's time. It reports whether
// there is one.
func (s *Server) TerminateOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		for _, e := range j.executions {
			for _, t := range e.tasks {
				if t.state == running && t.process != nil {
					terminate(t.process)
					return true
				}
			}
		}
	}
	return false
}

// terminate sends SIGTERM, and SIGKILL later; both do nothing once the program has ended.
func terminate(p Process) {
	p.Terminate()
	time.AfterFunc(grace, p.Kill)
}

func (s *Server) each(f func(*execution, *task)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		for _, e := range s.jobs[name].executions {
			for _, t := range e.tasks {
				f(e, t)
			}
		}
	}
}

func (s *Server) find(name string) *execution {
	for _, j := range s.jobs {
		for _, e := range j.executions {
			if e.name == name {
				return e
			}
		}
	}
	return nil
}

// schedule starts waiting tasks, the oldest execution first, as far as the capacity allows.
func (s *Server) schedule() {
	if s.closed {
		return
	}
	n := 0
	for _, j := range s.jobs {
		for _, e := range j.executions {
			for _, t := range e.tasks {
				if t.state == running {
					n++
				}
			}
		}
	}
	for _, j := range s.jobs {
		for _, e := range slices.Backward(j.executions) {
			for _, t := range e.tasks {
				if t.state != waiting {
					continue
				}
				if s.capacity >= 0 && n >= s.capacity {
					e.message = s.waiting
					continue
				}
				n++
				s.start(e, t)
			}
		}
	}
}

func (s *Server) start(e *execution, t *task) {
	t.state, e.message = running, ""
	if s.options.Launch == nil {
		return
	}
	p, err := s.options.Launch(t.Task)
	if err != nil {
		s.end(e, t, false, err.Error())
		return
	}
	t.process = p
	s.processes.Go(func() {
		ok := p.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.state == running {
			s.end(e, t, ok, fmt.Sprintf("Task %s-task%d failed with message: The container exited with an error.",
				t.Execution, t.Index))
		}
	})
}

// end records the end of a task, and that of its execution with the last one.
func (s *Server) end(e *execution, t *task, ok bool, message string) {
	t.state = succeeded
	if !ok {
		t.state, e.message = failed, message
	}
	for _, other := range e.tasks {
		if other.state == waiting || other.state == running {
			s.schedule()
			return
		}
	}
	e.ended = s.options.Now()
	s.schedule()
}

// cancel ends the tasks of an execution.
func (s *Server) cancel(e *execution) {
	for _, t := range e.tasks {
		switch t.state {
		case running:
			t.state = cancelled
			if t.process != nil {
				terminate(t.process)
			}
		case waiting:
			t.state = cancelled
		case succeeded, failed, cancelled:
		}
	}
	e.ended, e.message = s.options.Now(), "The execution was cancelled."
	s.schedule()
}
