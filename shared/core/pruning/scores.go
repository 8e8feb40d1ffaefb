package pruning

import (
	"encoding/binary"
	"errors"
	"math"
)

// Scores are the sums of scores by task and variant. They take 16 bytes for each pair of them.
type Scores struct {
	tasks, variants int
	cells           []cell // by task, then by variant
}

type cell struct {
	sum float64
	n   uint32
}

// NewScores returns the sums of no score.
func NewScores(tasks, variants int) *Scores {
	return &Scores{tasks, variants, make([]cell, tasks*variants)}
}

// Add adds the score of a trial. Sums depend on the order of the trials in their last bits.
func (s *Scores) Add(task, variant int, score float64) {
	c := &s.cells[task*s.variants+variant]
	c.sum += score
	c.n++
}

// Of returns the score of a task under a variant: the mean of its repetitions so far; false if
// none has a score.
func (s *Scores) Of(task, variant int) (float64, bool) {
	c := s.cells[task*s.variants+variant]
	return c.sum / float64(max(1, c.n)), c.n > 0
}

// Mean returns the mean score of the tasks that have one under the variant, and how many they are.
// The mean of none is 0.
func (s *Scores) Mean(variant int) (mean float64, tasks int) {
	sum := 0.0
	for t := range s.tasks {
		if x, ok := s.Of(t, variant); ok {
			sum += x
			tasks++
		}
	}
	return sum / float64(max(1, tasks)), tasks
}

// AppendBinary appends the sums in a compact form: for each cell the number of its scores as a
// varint, and if there are any their sum, 8 bytes LE. It never fails.
func (s *Scores) AppendBinary(b []byte) ([]byte, error) {
	for _, c := range s.cells {
		b = binary.AppendUvarint(b, uint64(c.n))
		if c.n > 0 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.sum))
		}
	}
	return b, nil
}

// errScores is the error of bytes that AppendBinary has not written for these tasks and variants.
var errScores = errors.New("these are not the sums of the scores of the run's tasks and variants")

// UnmarshalBinary reads what AppendBinary wrote for as many tasks and variants.
func (s *Scores) UnmarshalBinary(b []byte) error {
	for i := range s.cells {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > math.MaxUint32 {
			return errScores
		}
		b = b[size:]
		s.cells[i] = cell{}
		if n == 0 {
			continue
		}
		if len(b) < 8 {
			return errScores
		}
		s.cells[i] = cell{math.Float64frombits(binary.LittleEndian.Uint64(b)), uint32(n)}
		b = b[8:]
	}
	if len(b) > 0 {
		return errScores
	}
	return nil
}
