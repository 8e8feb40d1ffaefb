package model

import "rollout/shared/fault"

// Exchange gives the caller's block to all parts of a model and returns the blocks of all,
// in the order of the parts. All parts call it equally often. It may keep neither slice
// longer than until its next call.
type Exchange func(own []float32) ([][]float32, error)

// cut says which part of each matrix a runner computes: a range of output columns. The zero
// value computes all of them.
type cut struct {
	part, parts int
	exchange    Exchange
}

// columns returns the part's share of n columns.
func (c cut) columns(n int) span { return c.share(c.part, n) }

func (c cut) share(part, n int) span {
	if c.parts <= 1 {
		return span{0, n}
	}
	return span{part * n / c.parts, (part + 1) * n / c.parts}
}

// attention returns the part's columns of q, k and v: those of whole heads.
func (c cut) attention(shape Config) span {
	heads := c.columns(shape.Heads)
	return span{heads.start * shape.HeadSize, heads.end * shape.HeadSize}
}

// NewPart returns a Runner that computes one part of a model that is cut into several, on
// one goroutine. The parts run the same steps, each on its own copy of the model, and
// exchange their columns after each product. Every element is the sum that one whole
// Runner computes, in the same order: the logits have the same bits. A fault of exchange
// ends the step.
func NewPart(m *Model, part, parts int, exchange Exchange) (*Runner, error) {
	if part < 0 || part >= parts || parts > m.config.Heads {
		return nil, fault.New(fault.Invalid, "model: part %d of %d: a model of %d heads has at most as many parts",
			part, parts, m.config.Heads)
	}
	return newRunner(m, 1, cut{part, parts, exchange}), nil
}

// gather completes n rows of x, which have size floats each: this part has computed its own
// columns, which are unit floats each.
func (p *pass) gather(x []float32, size, unit, n int) error {
	if p.cut.parts <= 1 {
		return nil
	}
	own := p.cut.columns(size / unit)
	width := own.len() * unit
	resize(&p.block, n*width)
	for i := range n {
		copy(p.block[i*width:(i+1)*width], x[i*size+own.start*unit:])
	}
	blocks, err := p.cut.exchange(p.block)
	if err != nil {
		return err
	}
	for part, block := range blocks {
		s := p.cut.share(part, size/unit)
		if len(block) != n*s.len()*unit {
			return fault.New(fault.Corrupt, "model: part %d sent %d numbers instead of %d", part, len(block), n*s.len()*unit)
		}
		for i := range n {
			copy(x[i*size+s.start*unit:i*size+s.end*unit], block[i*s.len()*unit:])
		}
	}
	return nil
}
