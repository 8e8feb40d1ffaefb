package model

import (
	"math"
	"slices"
)

// reference is the same decoder in float64, in its simplest form: one token and
// one number at a time, with package math.
type reference struct {
	c       Config
	tensors map[string][]float64
	names   []Tensor
}

func newReference(m *Model) *reference {
	t := &reference{c: m.config, tensors: map[string][]float64{}, names: m.Tensors()}
	for _, x := range m.Tensors() {
		t.tensors[x.Name] = widen(x.Data)
	}
	return t
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// times returns w·x for w [len(w)/len(x), len(x)].
func times(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += w[o*len(x)+i] * v
		}
	}
	return y
}

func (t *reference) norm(x, gain []float64) []float64 {
	mean := 0.0
	for _, v := range x {
		mean += v * v / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(mean+float64(t.c.NormEpsilon)) * gain[i]
	}
	return y
}

func (t *reference) rotate(x []float64, position int) {
	half := t.c.HeadSize / 2
	for at := 0; at < len(x); at += t.c.HeadSize {
		for i := range half {
			angle := float64(position) * math.Pow(float64(t.c.RopeBase), -float64(2*i)/float64(t.c.HeadSize))
			sin, cos := math.Sincos(angle)
			a, b := x[at+i], x[at+half+i]
			x[at+i], x[at+half+i] = a*cos-b*sin, b*cos+a*sin
		}
	}
}

// states returns the normalised states after each token of one document.
func (t *reference) states(tokens []int32) [][]float64 {
	c, names := t.c, t.names
	keys, values := make([][][]float64, c.Layers), make([][][]float64, c.Layers)
	var all [][]float64
	for position, token := range tokens {
		x := slices.Clone(t.tensors[names[0].Name][int(token)*c.Width : (int(token)+1)*c.Width])
		add := func(y []float64) {
			for i, v := range y {
				x[i] += v
			}
		}
		for l := range c.Layers {
			w := func(i int) []float64 { return t.tensors[names[1+9*l+i].Name] }
			n := t.norm(x, w(0))
			q, k, v := times(w(1), n), times(w(2), n), times(w(3), n)
			t.rotate(q, position)
			t.rotate(k, position)
			keys[l], values[l] = append(keys[l], k), append(values[l], v)
			out := make([]float64, len(q))
			for at := 0; at < len(q); at += c.HeadSize {
				scores, sum := make([]float64, len(keys[l])), 0.0
				for j, k := range keys[l] {
					for i := range c.HeadSize {
						scores[j] += q[at+i] * k[at+i] / math.Sqrt(float64(c.HeadSize))
					}
					scores[j] = math.Exp(scores[j])
					sum += scores[j]
				}
				for j, v := range values[l] {
					for i := range c.HeadSize {
						out[at+i] += scores[j] / sum * v[at+i]
					}
				}
			}
			add(times(w(4), out))
			n = t.norm(x, w(5))
			gate, up := times(w(6), n), times(w(7), n)
			for i, g := range gate {
				up[i] *= g / (1 + math.Exp(-g))
			}
			add(times(w(8), up))
		}
		all = append(all, t.norm(x, t.tensors["model.norm.weight"]))
	}
	return all
}

func (t *reference) logits(state []float64) []float64 {
	return times(t.tensors["model.embed_tokens.weight"], state)
}

// loss returns the sum over the counted targets of a batch.
func (t *reference) loss(batch []Sequence) float64 {
	loss := 0.0
	for _, q := range batch {
		for d := range q.documents {
			for i, state := range t.states(q.Tokens[d.start:d.end]) {
				target := q.Targets[d.start+i]
				if target < 0 {
					continue
				}
				logits, sum := t.logits(state), 0.0
				for _, l := range logits {
					sum += math.Exp(l)
				}
				loss += math.Log(sum) - logits[target]
			}
		}
	}
	return loss
}

// rewards returns the reward of each sequence with the given score head.
func (t *reference) rewards(batch []Sequence, score []float64) []float64 {
	var all []float64
	for _, q := range batch {
		var last span
		for d := range q.documents {
			last = d
		}
		states := t.states(q.Tokens[last.start:last.end])
		all = append(all, times(score, states[len(states)-1])[0])
	}
	return all
}
