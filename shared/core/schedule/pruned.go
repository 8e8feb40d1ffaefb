package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// PrunedVariant says that no shard of a variant from shard From on is sent. Those before it
// are sent as those of any other variant.
type PrunedVariant struct {
	Variant uint32
	From    int
}

// Pruned are the pruned variants of a run, sorted by their number. The zero value has none.
type Pruned []PrunedVariant

// find returns where the variant is or belongs, and whether it is there.
func (p Pruned) find(variant uint32) (int, bool) {
	return slices.BinarySearchFunc(p, variant, func(v PrunedVariant, n uint32) int { return cmp.Compare(v.Variant, n) })
}

// Has reports whether shard n, which is of the variant, is pruned.
func (p Pruned) Has(variant uint32, n int) bool {
	i, found := p.find(variant)
	return found && n >= p[i].From
}

// HasVariant reports whether some shards of the variant are pruned.
func (p Pruned) HasVariant(variant uint32) bool {
	_, found := p.find(variant)
	return found
}

// With returns p with one variant more, and leaves p as it is. A variant that is pruned already
// stays so from its first shard on.
func (p Pruned) With(v PrunedVariant) Pruned {
	i, found := p.find(v.Variant)
	if found {
		return p
	}
	return slices.Insert(slices.Clone(p), i, v)
}

// MarshalJSON writes [variant,from,variant,from,…].
func (p Pruned) MarshalJSON() ([]byte, error) {
	out := make([]int64, 0, 2*len(p))
	for _, v := range p {
		out = append(out, int64(v.Variant), int64(v.From))
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Pruned) UnmarshalJSON(b []byte) error {
	var v []int64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if len(v)%2 != 0 {
		return fmt.Errorf("pruned variants of %d numbers, which are not two for each", len(v))
	}
	var out Pruned
	for i := 0; i < len(v); i += 2 {
		if v[i] < 0 || v[i] > math.MaxUint32 || v[i+1] < 0 || v[i+1] > math.MaxInt {
			return fmt.Errorf("pruned variant %d from shard %d", v[i], v[i+1])
		}
		if n := len(out); n > 0 && int64(out[n-1].Variant) >= v[i] {
			return fmt.Errorf("pruned variant %d behind %d", v[i], out[n-1].Variant)
		}
		out = append(out, PrunedVariant{uint32(v[i]), int(v[i+1])})
	}
	*p = out
	return nil
}
