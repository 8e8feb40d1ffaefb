package modelsize

const gib = 1 << 30

// overheadGiB is what a server needs of a GPU besides weights and cache: activations,
// CUDA graphs, libraries.
const overheadGiB = 0.5

// step is that of the contexts that Fit proposes, in tokens.
const step = 1024

// Card says which memory the server has.
type Card struct {
	GiB      float64 // of one GPU
	Parallel int     // GPUs that the server uses together; at least 1
	// Share is the part of the memory that the server takes; 0 is 0.9.
	Share float64
	// CacheBytes are those of a cached value; 0 is as the weights.
	CacheBytes float64
	// WeightFactor is what the server makes of the weights, such as 0.5 for one that
	// quantizes 2 bytes to 1 as it loads; 0 is 1.
	WeightFactor float64
}

// Fit is how a model fits into the memory, for each GPU.
type Fit struct {
	WeightsGiB float64
	LeftGiB    float64 // for the cache, beside the weights; negative if they do not fit
	CacheGiB   float64 // that the context needs
	Context    int     // in tokens
	Most       int     // the largest context that fits, in whole thousands; 0 if none does
}

// OK reports whether the context fits.
func (f Fit) OK() bool { return f.CacheGiB <= f.LeftGiB }

// CacheBytesPerToken returns what a token takes of each GPU's memory. Servers give each
// GPU whole heads; with fewer heads than GPUs some have the same one.
func (m Model) CacheBytesPerToken(c Card) float64 {
	value := c.CacheBytes
	if value == 0 {
		value = max(m.ValueBytes, 2) // weights of one byte are computed with two
	}
	if m.LatentPerLayer > 0 { // each GPU has all of it
		return float64(m.Layers*m.LatentPerLayer) * value
	}
	parallel := max(c.Parallel, 1)
	heads := (m.KVHeads + parallel - 1) / parallel
	return 2 * float64(m.Layers*heads*m.HeadDim) * value
}

// Fit computes how the model fits with a context; 0 is the model's own.
func (m Model) Fit(c Card, context int) Fit {
	if context == 0 {
		context = m.Context
	}
	share, factor := c.Share, c.WeightFactor
	if share == 0 {
		share = 0.9
	}
	if factor == 0 {
		factor = 1
	}
	weights := m.WeightBytes * factor / float64(max(c.Parallel, 1)) / gib
	token := m.CacheBytesPerToken(c)
	f := Fit{WeightsGiB: weights, LeftGiB: c.GiB*share - weights - overheadGiB, CacheGiB: token * float64(context) / gib,
		Context: context}
	if f.LeftGiB > 0 && token > 0 {
		f.Most = min(int(f.LeftGiB*gib/token)/step*step, m.Context)
	}
	return f
}
