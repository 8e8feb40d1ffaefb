package model

// Gradients has a float for each parameter of a model.
type Gradients struct{ *parameters }

// NewGradients makes gradients of zero.
func NewGradients(m *Model) *Gradients { return &Gradients{newParameters(m.config)} }

// Tensors lists the gradients as Model.Tensors lists the parameters; Data is
// not a copy.
func (g *Gradients) Tensors() []Tensor { return copyTensors(g.tensors) }

// Flat is all gradients as one array, in the order of Tensors; not a copy.
func (g *Gradients) Flat() []float32 { return g.flat }

// Zero forgets what was added up.
func (g *Gradients) Zero() { clear(g.flat) }
