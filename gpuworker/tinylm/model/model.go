package model

import (
	"math"
	"slices"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Model holds the parameters of a decoder. Many goroutines may read it at once.
// A goroutine that changes the data of Tensors or Flat needs exclusive access.
type Model struct {
	*parameters
	config   Config
	kernels  kernel.Set
	cos, sin []float32 // [Context, HeadSize/2]
}

// New returns a model with initial parameters, which depend only on the shape
// and the seed. Weights are normally distributed with a standard deviation of
// 0.02, divided by √(2·Layers) for the projections that are added to the
// residual stream; gains are 1.
func New(c Config, seed uint64) (*Model, error) {
	m, err := empty(c)
	if err != nil {
		return nil, err
	}
	const deviation = 0.02
	random := rng{state: seed}
	residual := deviation / math.Sqrt(float64(2*c.Layers))
	random.normal(m.embed, deviation)
	for _, l := range m.layers {
		fill(l.attentionNorm, 1)
		random.normal(l.q, deviation)
		random.normal(l.k, deviation)
		random.normal(l.v, deviation)
		random.normal(l.o, residual)
		fill(l.mlpNorm, 1)
		random.normal(l.gate, deviation)
		random.normal(l.up, deviation)
		random.normal(l.down, residual)
	}
	fill(m.norm, 1)
	return m, nil
}

// FromTensors returns a model with a copy of the given tensors, which may have
// any order. It returns an Invalid fault that names the tensor if one is
// missing, unknown or given twice, has another shape, or has a value that is not
// finite.
func FromTensors(c Config, ts []Tensor) (*Model, error) {
	m, err := empty(c)
	if err != nil {
		return nil, err
	}
	given := make(map[string]Tensor, len(ts))
	for _, t := range ts {
		if _, twice := given[t.Name]; twice {
			return nil, fault.New(fault.Invalid, "model: tensor %q is given twice", t.Name)
		}
		given[t.Name] = t
	}
	for _, want := range m.tensors {
		t, ok := given[want.Name]
		if !ok {
			return nil, fault.New(fault.Invalid, "model: tensor %q is missing: a model of %d layers has %d tensors",
				want.Name, c.Layers, len(m.tensors))
		}
		if !slices.Equal(t.Shape, want.Shape) || len(t.Data) != len(want.Data) {
			return nil, fault.New(fault.Invalid, "model: tensor %q has shape %v and %d values: the config requires shape %v",
				t.Name, t.Shape, len(t.Data), want.Shape)
		}
		if i := m.notFinite(t.Data); i >= 0 {
			return nil, fault.New(fault.Invalid, "model: tensor %q has %v at index %d: the weights are damaged",
				t.Name, t.Data[i], i)
		}
		copy(want.Data, t.Data)
		delete(given, want.Name)
	}
	for name := range given {
		return nil, fault.New(fault.Invalid,
			"model: tensor %q does not belong to a Llama decoder of %d layers with tied embeddings", name, c.Layers)
	}
	return m, nil
}

// empty returns a model of the shape, with all parameters zero.
func empty(c Config) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Model{parameters: newParameters(c), config: c, kernels: kernel.Best()}
	m.cos, m.sin = rotations(c)
	return m, nil
}

// Config returns the model's shape.
func (m *Model) Config() Config { return m.config }

// Tensors returns the parameters in a fixed order. Data is not a copy: writing to
// it changes the model. Every Backprop and each Runner made later use the
// changed parameters; earlier Runners do not.
func (m *Model) Tensors() []Tensor { return copyTensors(m.tensors) }

// Flat returns all parameters as one array, in the order of Tensors, without a
// copy.
func (m *Model) Flat() []float32 { return m.flat }

// UseKernels sets the implementation of the arithmetic for Runners and Backprops
// made later. The default is kernel.Best. Results do not depend on it.
func (m *Model) UseKernels(s kernel.Set) { m.kernels = s }

// Clone returns a copy that shares no memory with m.
func (m *Model) Clone() *Model {
	c, err := empty(m.config)
	if err != nil {
		panic(err) // the shape was checked when m was made
	}
	c.kernels = m.kernels
	copy(c.flat, m.flat)
	return c
}

// rotations returns tables of the cosines and sines of
// position·RopeBase^(-2i/HeadSize).
func rotations(c Config) (cos, sin []float32) {
	half := c.HeadSize / 2
	cos, sin = make([]float32, c.Context*half), make([]float32, c.Context*half)
	for i := range half {
		frequency := kernel.Pow64(float64(c.RopeBase), -float64(2*i)/float64(c.HeadSize))
		for p := range c.Context {
			s, co := kernel.SinCos64(float64(float64(p) * frequency))
			sin[p*half+i], cos[p*half+i] = float32(s), float32(co)
		}
	}
	return cos, sin
}

// notFinite returns the index of the first NaN or infinity, or -1.
func (m *Model) notFinite(x []float32) int {
	if m.kernels.Finite(x) {
		return -1
	}
	return slices.IndexFunc(x, func(v float32) bool { return v-v != 0 })
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// rng is the random generator of initial parameters: SplitMix64 (Steele, Lea,
// Flood 2014).
type rng struct{ state uint64 }

func (g *rng) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform returns a number of (0, 1].
func (g *rng) uniform() float64 { return float64(g.next()>>11+1) / (1 << 53) }

// normal fills x with normally distributed values of mean 0, by the method of Box
// and Muller.
func (g *rng) normal(x []float32, deviation float64) {
	for i := range x {
		radius := math.Sqrt(float64(-2 * kernel.Log64(g.uniform())))
		_, cos := kernel.SinCos64(float64(2 * math.Pi * g.uniform()))
		x[i] = float32(float64(radius*cos) * deviation)
	}
}
