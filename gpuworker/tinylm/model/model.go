package model

import (
	"math"
	"slices"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Model is the parameters of a decoder. Reading it is safe from many
// goroutines; whoever changes the data that Tensors shows must be alone.
type Model struct {
	*parameters
	config   Config
	kernels  kernel.Set
	cos, sin []float32 // [Context, HeadSize/2]
}

// New makes a model with fresh parameters, a function of the shape and the seed
// alone: normal values of standard deviation 0.02, the projections that are
// added to the residual stream smaller by √(2·Layers), gains of 1.
func New(c Config, seed uint64) (*Model, error) {
	m, err := empty(c)
	if err != nil {
		return nil, err
	}
	const deviation = 0.02
	dice := rng{state: seed}
	residual := deviation / math.Sqrt(float64(2*c.Layers))
	dice.normal(m.embed, deviation)
	for _, l := range m.layers {
		fill(l.attentionNorm, 1)
		dice.normal(l.q, deviation)
		dice.normal(l.k, deviation)
		dice.normal(l.v, deviation)
		dice.normal(l.o, residual)
		fill(l.mlpNorm, 1)
		dice.normal(l.gate, deviation)
		dice.normal(l.up, deviation)
		dice.normal(l.down, residual)
	}
	fill(m.norm, 1)
	return m, nil
}

// FromTensors makes a model with a copy of the tensors given, in any order.
// A tensor too many, missing, of another shape, or with a value that is not a
// finite number is an Invalid fault that names it.
func FromTensors(c Config, ts []Tensor) (*Model, error) {
	m, err := empty(c)
	if err != nil {
		return nil, err
	}
	given := make(map[string]Tensor, len(ts))
	for _, t := range ts {
		if _, twice := given[t.Name]; twice {
			return nil, fault.New(fault.Invalid, "model: tensor %q is there twice", t.Name)
		}
		given[t.Name] = t
	}
	for _, want := range m.tensors {
		t, ok := given[want.Name]
		if !ok {
			return nil, fault.New(fault.Invalid, "model: tensor %q is missing: a model of %d layers has %d tensors", want.Name, c.Layers, len(m.tensors))
		}
		if !slices.Equal(t.Shape, want.Shape) || len(t.Data) != len(want.Data) {
			return nil, fault.New(fault.Invalid, "model: tensor %q has shape %v and %d values: the config asks for %v", t.Name, t.Shape, len(t.Data), want.Shape)
		}
		if i := m.notFinite(t.Data); i >= 0 {
			return nil, fault.New(fault.Invalid, "model: tensor %q has %v at %d: the weights are damaged", t.Name, t.Data[i], i)
		}
		copy(want.Data, t.Data)
		delete(given, want.Name)
	}
	for name := range given {
		return nil, fault.New(fault.Invalid, "model: tensor %q does not belong to a Llama decoder with tied embeddings of %d layers", name, c.Layers)
	}
	return m, nil
}

func empty(c Config) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Model{parameters: newParameters(c), config: c, kernels: kernel.Best()}
	m.cos, m.sin = rotations(c)
	return m, nil
}

// Config is the model's shape.
func (m *Model) Config() Config { return m.config }

// Tensors lists the parameters in a fixed order. Data is not a copy: writing to
// it changes the model, for Runners that are made later and for every Backprop.
func (m *Model) Tensors() []Tensor { return copyTensors(m.tensors) }

// Flat is all parameters as one array, in the order of Tensors; not a copy.
func (m *Model) Flat() []float32 { return m.flat }

// UseKernels chooses the implementation of the arithmetic for what is made from
// the model later. Results are the same bits; New and FromTensors choose the
// best.
func (m *Model) UseKernels(s kernel.Set) { m.kernels = s }

// Clone is a copy that shares nothing.
func (m *Model) Clone() *Model {
	c, err := empty(m.config)
	if err != nil {
		panic(err) // the shape was checked when m was made
	}
	c.kernels = m.kernels
	copy(c.flat, m.flat)
	return c
}

// rotations tabulates the cosines and sines of position·RopeBase^(-2i/HeadSize).
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

// notFinite is the index of the first NaN or infinity, or -1.
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
