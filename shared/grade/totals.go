package grade

import (
	"maps"
	"math/big"
	"slices"
)

// Totals sum up the scores of a run's rows, or of a part of them.
type Totals struct {
	Rows    Total            `json:"rows"`    // of the rows' own scores
	Graders map[string]Total `json:"graders"` // by grader
}

// Total sums up scores.
type Total struct {
	Sum     Sum              `json:"sum"`
	Scored  uint64           `json:"scored"`
	Missing map[Cause]uint64 `json:"missing,omitempty"`
}

// Add adds the scores of a row.
func (t *Totals) Add(r Row) {
	if t.Graders == nil {
		t.Graders = map[string]Total{}
	}
	t.Rows = t.Rows.add(RowScore{r.Score, ""})
	for name, s := range r.Scores {
		t.Graders[name] = t.Graders[name].add(s)
	}
}

// Join adds the totals of other rows.
func (t *Totals) Join(o Totals) {
	if t.Graders == nil {
		t.Graders = map[string]Total{}
	}
	t.Rows = t.Rows.join(o.Rows)
	for name, other := range o.Graders {
		t.Graders[name] = t.Graders[name].join(other)
	}
}

func (t Total) add(s RowScore) Total {
	if s.Score != nil {
		t.Sum, t.Scored = t.Sum.plus(sumOf(*s.Score)), t.Scored+1
		return t
	}
	if t.Missing == nil {
		t.Missing = map[Cause]uint64{}
	}
	t.Missing[s.Cause]++
	return t
}

func (t Total) join(o Total) Total {
	t.Sum, t.Scored, t.Missing = t.Sum.plus(o.Sum), t.Scored+o.Scored, maps.Clone(t.Missing)
	for _, cause := range slices.Sorted(maps.Keys(o.Missing)) {
		if t.Missing == nil {
			t.Missing = map[Cause]uint64{}
		}
		t.Missing[cause] += o.Missing[cause]
	}
	return t
}

// Mean returns the mean score; nil without a score.
func (t Total) Mean() *float64 {
	if t.Scored == 0 {
		return nil
	}
	n := new(big.Float).SetPrec(sumPrecision).SetUint64(t.Scored)
	mean, _ := n.Quo(t.Sum.value(), n).Float64()
	return &mean
}

// MissingCount returns how many rows have no score.
func (t Total) MissingCount() (n uint64) {
	for _, k := range t.Missing {
		n += k
	}
	return n
}

// sumPrecision is the number of bits of a Sum. Scores whose magnitudes are within
// 60 decimal places of each other are summed without rounding, so that a mean
// does not depend on how rows were grouped.
const sumPrecision = 256

// Sum is an exact sum of scores. The zero value is 0.
type Sum struct{ f *big.Float }

func sumOf(x float64) Sum { return Sum{new(big.Float).SetPrec(sumPrecision).SetFloat64(x)} }

func (s Sum) value() *big.Float {
	if s.f == nil {
		return new(big.Float).SetPrec(sumPrecision)
	}
	return s.f
}

func (s Sum) plus(o Sum) Sum {
	return Sum{new(big.Float).SetPrec(sumPrecision).Add(s.value(), o.value())}
}

// MarshalText returns the shortest decimal text that UnmarshalText reads as the
// same sum.
func (s Sum) MarshalText() ([]byte, error) { return s.value().MarshalText() }

// UnmarshalText reads what MarshalText wrote.
func (s *Sum) UnmarshalText(b []byte) error {
	s.f = new(big.Float).SetPrec(sumPrecision)
	return s.f.UnmarshalText(b)
}
