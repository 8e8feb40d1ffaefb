package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/fault"
)

// counter is a model whose next token is the last one plus one. Step first
// receives from gate, unless gate is nil.
type counter struct {
	mu      sync.Mutex
	batches [][]int // number of tokens of each slot, for each step
	gate    chan struct{}
	fail    error
}

type sequence struct{ last int32 }

func (s *sequence) Truncate(int) { s.last = 0 }

func (c *counter) Vocab() int                      { return 1000 }
func (c *counter) Context() int                    { return 50 }
func (c *counter) NewSequence() scheduler.Sequence { return &sequence{} }
func (c *counter) AllLogits(t []int32, each func(int, []float32)) error {
	return errors.New("this model has no logits of a whole prompt")
}

func (c *counter) Step(slots []scheduler.Slot, logits [][]float32) error {
	if c.gate != nil {
		<-c.gate
	}
	var sizes []int
	for i, s := range slots {
		sizes = append(sizes, len(s.Tokens))
		last := s.Tokens[len(s.Tokens)-1]
		s.Sequence.(*sequence).last = last
		if logits[i] != nil {
			clear(logits[i])
			logits[i][last+1] = 1
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, sizes)
	return c.fail
}

// countingJob returns a job that ends with the token to, and appends its tokens
// to got.
func countingJob(prompt []int32, to int32, got *[]int32) *scheduler.Job {
	return &scheduler.Job{Prompt: prompt, NextToken: func(logits []float32) (int32, bool, error) {
		next := int32(slices.Index(logits, 1))
		*got = append(*got, next)
		return next, next < to, nil
	}}
}

func TestSequencesJoinAndLeaveTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &counter{gate: make(chan struct{})}
		s := scheduler.New(m, scheduler.Config{Slots: 2, Prefill: 4})
		defer func() { close(m.gate); s.Close() }()
		var a, b, c []int32
		var all sync.WaitGroup
		run := func(j *scheduler.Job) {
			all.Go(func() {
				if times, err := s.Run(t.Context(), j); err != nil || times.Ended.Before(times.First) {
					t.Errorf("%+v, %v", times, err)
				}
			})
			synctest.Wait()
		}
		run(countingJob([]int32{1, 2, 3, 4, 5, 6}, 9, &a)) // the prompt takes two steps
		run(countingJob([]int32{20}, 22, &b))              // joins the second step
		run(countingJob([]int32{30}, 31, &c))              // waits for a free slot
		if st := s.Stats(); st.Running != 1 || st.Waiting != 2 {
			t.Errorf("%+v, want 1 running and 2 waiting", st)
		}
		for range 4 {
			m.gate <- struct{}{}
			synctest.Wait()
		}
		all.Wait()
		if want := []int32{7, 8, 9}; !slices.Equal(a, want) {
			t.Errorf("the first job got %v, want %v", a, want)
		}
		if want := []int32{21, 22}; !slices.Equal(b, want) {
			t.Errorf("the second job got %v, want %v", b, want)
		}
		if want := []int32{31}; !slices.Equal(c, want) {
			t.Errorf("the third job got %v, want %v", c, want)
		}
		want := [][]int{{4}, {2, 1}, {1, 1}, {1, 1}}
		if !slices.EqualFunc(m.batches, want, slices.Equal[[]int]) {
			t.Errorf("the steps read %v tokens, want %v", m.batches, want)
		}
		if st := s.Stats(); st.Running != 0 || st.Cache != 0 || st.PromptTokens != 8 || st.NewTokens != 6 {
			t.Errorf("after all jobs: %+v, want an empty batch with 8 prompt tokens and 6 new ones", st)
		}
	})
}

func TestCanceledJobThatWaitsIsNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &counter{gate: make(chan struct{})}
		s := scheduler.New(m, scheduler.Config{Slots: 1})
		var first, second []int32
		ended := make(chan error)
		go func() {
			_, err := s.Run(t.Context(), countingJob([]int32{1}, 2, &first))
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := s.Run(ctx, countingJob([]int32{1}, 2, &second))
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !fault.Is(err, fault.Canceled) {
			t.Errorf("the canceled job returned %v, want a Canceled fault", err)
		}
		close(m.gate)
		if err := <-ended; err != nil || len(second) != 0 {
			t.Errorf("the first job returned %v; the canceled one got %v, want no tokens", err, second)
		}
		s.Close()
	})
}

func TestModelErrorEndsOnlyTheCurrentBatch(t *testing.T) {
	t.Parallel()
	broken := fault.New(fault.Corrupt, "the logits are NaN")
	m := &counter{fail: broken}
	s := scheduler.New(m, scheduler.Config{})
	defer s.Close()
	var got []int32
	_, err := s.Run(t.Context(), countingJob([]int32{1}, 2, &got))
	if !errors.Is(err, broken) || !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want the model's error", err)
	}
	m.mu.Lock()
	m.fail = nil
	m.mu.Unlock()
	if _, err := s.Run(t.Context(), countingJob([]int32{1}, 2, &got)); err != nil || !slices.Equal(got, []int32{2}) {
		t.Errorf("the next job got %v, %v; want [2]", got, err)
	}
}

func TestImpossiblePromptsAndClosedSchedulersAreRefused(t *testing.T) {
	t.Parallel()
	s := scheduler.New(&counter{}, scheduler.Config{})
	for name, prompt := range map[string][]int32{
		"empty": nil, "as long as the context": make([]int32, 50), "unknown token": {1, 1000}, "negative token": {-1},
	} {
		if _, err := s.Run(t.Context(), &scheduler.Job{Prompt: prompt}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Close()
	s.Close()
	var got []int32
	_, err := s.Run(t.Context(), countingJob([]int32{1}, 2, &got))
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("closed scheduler: %v, want an Unavailable fault", err)
	}
}
