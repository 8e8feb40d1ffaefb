package model

import (
	"fmt"
	"slices"
)

// Tensor is a named array in row-major order.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// parameters holds the tensors of a model, or their gradients, which have the
// same shapes. All tensors lie in one array, flat, in the order of tensors.
type parameters struct {
	flat    []float32
	tensors []Tensor

	embed  []float32 // [Vocab, Width], also the output projection
	layers []layer
	norm   []float32 // [Width]
}

type layer struct {
	attentionNorm []float32 // [Width]
	q, k, v       []float32 // [Heads*HeadSize, Width]
	o             []float32 // [Width, Heads*HeadSize]
	mlpNorm       []float32 // [Width]
	gate, up      []float32 // [Hidden, Width]
	down          []float32 // [Width, Hidden]
}

func newParameters(c Config) *parameters {
	p := &parameters{flat: make([]float32, c.Parameters()), layers: make([]layer, c.Layers)}
	rest := p.flat
	take := func(name string, shape ...int) []float32 {
		n := 1
		for _, s := range shape {
			n *= s
		}
		data := rest[:n:n]
		rest = rest[n:]
		p.tensors = append(p.tensors, Tensor{Name: name, Shape: shape, Data: data})
		return data
	}
	attention := c.Heads * c.HeadSize
	p.embed = take("model.embed_tokens.weight", c.Vocab, c.Width)
	for i := range p.layers {
		l, name := &p.layers[i], fmt.Sprintf("model.layers.%d.", i)
		l.attentionNorm = take(name+"input_layernorm.weight", c.Width)
		l.q = take(name+"self_attn.q_proj.weight", attention, c.Width)
		l.k = take(name+"self_attn.k_proj.weight", attention, c.Width)
		l.v = take(name+"self_attn.v_proj.weight", attention, c.Width)
		l.o = take(name+"self_attn.o_proj.weight", c.Width, attention)
		l.mlpNorm = take(name+"post_attention_layernorm.weight", c.Width)
		l.gate = take(name+"mlp.gate_proj.weight", c.Hidden, c.Width)
		l.up = take(name+"mlp.up_proj.weight", c.Hidden, c.Width)
		l.down = take(name+"mlp.down_proj.weight", c.Width, c.Hidden)
	}
	p.norm = take("model.norm.weight", c.Width)
	return p
}

// copyTensors returns a copy of the list that shares only Data.
func copyTensors(ts []Tensor) []Tensor {
	ts = slices.Clone(ts)
	for i := range ts {
		ts[i].Shape = slices.Clone(ts[i].Shape)
	}
	return ts
}

// Gradients has a float for each parameter of a model.
type Gradients struct{ *parameters }

// NewGradients returns gradients for the parameters of m, all zero.
func NewGradients(m *Model) *Gradients { return &Gradients{newParameters(m.config)} }

// Tensors returns the gradients in the order of Model.Tensors. Data is not a
// copy.
func (g *Gradients) Tensors() []Tensor { return copyTensors(g.tensors) }

// Flat returns all gradients as one array, in the order of Tensors, without a
// copy.
func (g *Gradients) Flat() []float32 { return g.flat }

// Zero sets all gradients to zero.
func (g *Gradients) Zero() { clear(g.flat) }
