package model

import (
	"slices"
	"sync"
	"testing"

	"rollout/gpuworker/tinylm/kernel"
)

// meeting exchanges the blocks of parts that run in one process.
type meeting struct {
	mu     sync.Mutex
	full   *sync.Cond
	blocks [][]float32
	last   [][]float32
	here   int
	round  int
}

func newMeeting(parts int) *meeting {
	m := &meeting{blocks: make([][]float32, parts)}
	m.full = sync.NewCond(&m.mu)
	return m
}

func (m *meeting) exchange(part int) Exchange {
	return func(own []float32) ([][]float32, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.blocks[part] = slices.Clone(own)
		m.here++
		if m.here == len(m.blocks) {
			m.last, m.blocks, m.here = m.blocks, make([][]float32, len(m.blocks)), 0
			m.round++
			m.full.Broadcast()
			return m.last, nil
		}
		for round := m.round; m.round == round; {
			m.full.Wait()
		}
		return m.last, nil
	}
}

func TestPartsComputeTheBitsOfTheWholeModel(t *testing.T) {
	t.Parallel()
	c := Config{Vocab: 83, Width: 36, Layers: 2, Heads: 3, HeadSize: 10, Hidden: 53, Context: 64, RopeBase: 1e4,
		NormEpsilon: 1e-5}
	for _, kernels := range []kernel.Set{kernel.Scalar(), kernel.Best()} {
		m, err := New(c, 7)
		if err != nil {
			t.Fatal(err)
		}
		m.UseKernels(kernels)
		steps := [][][]int32{{{1, 2, 3, 80}, {5}}, {{7}, {82}}, {{9}, {11}}}
		run := func(r *Runner) (out [][]float32, err error) {
			sessions := []*Session{m.NewSession(), m.NewSession()}
			for _, step := range steps {
				logits := [][]float32{make([]float32, c.Vocab), make([]float32, c.Vocab)}
				slots := []Slot{{sessions[0], step[0]}, {sessions[1], step[1]}}
				if err := r.Step(slots, logits); err != nil {
					return nil, err
				}
				out = append(out, logits...)
			}
			return out, nil
		}
		want, err := run(NewRunner(m, 2))
		if err != nil {
			t.Fatal(err)
		}
		for parts := 1; parts <= 3; parts++ {
			meet := newMeeting(parts)
			var all sync.WaitGroup
			for part := range parts {
				r, err := NewPart(m, part, parts, meet.exchange(part))
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					got, err := run(r)
					if err != nil {
						t.Errorf("part %d of %d: %v", part, parts, err)
						return
					}
					for i := range want {
						if !slices.Equal(got[i], want[i]) {
							t.Errorf("%v: part %d of %d: the logits of step %d differ", kernels, part, parts, i/2)
						}
					}
				})
			}
			all.Wait()
		}
	}
}

func TestPartNeedsAHeadOfItsOwn(t *testing.T) {
	t.Parallel()
	m, err := New(Config{Vocab: 8, Width: 4, Layers: 1, Heads: 2, HeadSize: 2, Hidden: 4, Context: 8, RopeBase: 1e4,
		NormEpsilon: 1e-5}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]int{{0, 3}, {2, 2}, {-1, 2}} {
		if _, err := NewPart(m, at[0], at[1], nil); err == nil {
			t.Errorf("part %d of %d was made", at[0], at[1])
		}
	}
}
