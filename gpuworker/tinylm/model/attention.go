package model

import (
	"math"

	"rollout/gpuworker/tinylm/kernel"
)

// attendRows is the number of positions whose scores are computed together. It
// is small because the scores of later positions are computed too and dropped.
const attendRows = 12

// attention is the scratch of one head of one document: packed right-hand sides,
// and the gradient of the scores.
type attention struct {
	keys, keysT, values, valuesT, queries, results []float32
	scores                                         []float32
}

// matrix returns a packed matrix of k rows and n columns that uses the memory of
// *x, which grows if necessary.
func matrix(x *[]float32, k, n int) kernel.Matrix {
	resize(x, k*kernel.Padded(n))
	return kernel.Matrix{Data: *x, Step: kernel.Lanes, Panel: k * kernel.Lanes}
}

// heads calls yield for each document and head of the sequence. at is the index
// of the head's first float in arrays [tokens, Heads*HeadSize], n the number of
// positions, and p the head's probabilities [n, stride].
func (w *backpropThread) heads(probabilities []float32, yield func(at, n, stride int, p []float32)) {
	size := w.config.HeadSize
	for d := range w.seq.documents {
		n := d.len()
		stride := kernel.Padded(n)
		for h := range w.config.Heads {
			yield((d.start*w.config.Heads+h)*size, n, stride, probabilities[:n*stride])
			probabilities = probabilities[n*stride:]
		}
	}
}

func (w *backpropThread) scale() float32 { return float32(1 / math.Sqrt(float64(w.config.HeadSize))) }

// attend computes causal attention within each document into out, and stores the
// probabilities in s. Probabilities beyond a row's own position are set to zero
// as far as the sums read them: a zero term changes no sum.
func (w *backpropThread) attend(out []float32, s *saved) {
	k, size, row := w.kernels, w.config.HeadSize, w.config.Heads*w.config.HeadSize
	w.heads(s.probabilities, func(at, n, stride int, p []float32) {
		keysT, values := matrix(&w.keysT, size, n), matrix(&w.values, n, size)
		k.PackTransposed(keysT, s.k[at:], n, size, row)
		k.PackRows(values, s.v[at:], n, size, row)
		for r := 0; r < n; r += attendRows {
			end := min(r+attendRows, n)
			k.Product(p[r*stride:], stride, rows(s.q[at+r*row:], row), keysT, end-r, size, end, false)
			for i := r; i < end; i++ {
				scores := p[i*stride : i*stride+i+1]
				k.Scale(scores, w.scale())
				k.Softmax(scores)
				clear(p[i*stride+i+1 : i*stride+end])
			}
			k.Product(out[at+r*row:], row, rows(p[r*stride:], stride), values, end-r, end, size, false)
		}
	})
}

// attendBack computes dq, dk and dv, the gradients of the queries, keys and
// values (rotated, as in s), from d, the gradient of attend's result.
func (w *backpropThread) attendBack(dq, dk, dv, d []float32, s *saved) {
	k, size, row := w.kernels, w.config.HeadSize, w.config.Heads*w.config.HeadSize
	w.heads(s.probabilities, func(at, n, stride int, p []float32) {
		keys, valuesT := matrix(&w.keys, n, size), matrix(&w.valuesT, size, n)
		queries, results := matrix(&w.queries, n, size), matrix(&w.results, n, size)
		k.PackRows(keys, s.k[at:], n, size, row)
		k.PackTransposed(valuesT, s.v[at:], n, size, row)
		k.PackRows(queries, s.q[at:], n, size, row)
		k.PackRows(results, d[at:], n, size, row)
		resize(&w.scores, n*stride)
		ds := w.scores
		for r := 0; r < n; r += attendRows {
			end := min(r+attendRows, n)
			k.Product(ds[r*stride:], stride, rows(d[at+r*row:], row), valuesT, end-r, size, end, false)
			for i := r; i < end; i++ {
				k.SoftmaxBackward(ds[i*stride:i*stride+i+1], p[i*stride:i*stride+i+1], w.scale())
				clear(ds[i*stride+i+1 : i*stride+end])
			}
			k.Product(dq[at+r*row:], row, rows(ds[r*stride:], stride), keys, end-r, end, size, false)
		}
		// The positions from j on attend to the key and value of position j,
		// so these sums go down the columns, from row j.
		for j := 0; j < n; j += attendRows {
			end := min(j+attendRows, n)
			k.Product(dk[at+j*row:], row, columns(ds[j*stride+j:], stride), below(queries, j), end-j, n-j, size, false)
			k.Product(dv[at+j*row:], row, columns(p[j*stride+j:], stride), below(results, j), end-j, n-j, size, false)
		}
	})
}

// columns returns the transpose of x, which has n floats per row, as a left-hand
// side.
func columns(x []float32, n int) kernel.Rows { return kernel.Rows{Data: x, Row: 1, Col: n} }

// below returns m without its first rows.
func below(m kernel.Matrix, rows int) kernel.Matrix {
	m.Data = m.Data[rows*m.Step:]
	return m
}
