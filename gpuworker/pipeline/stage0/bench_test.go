package stage0_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/link"
	"rollout/gpuworker/pipeline/stage0"
	"rollout/gpuworker/pipeline/stage1"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
)

// paced is a generator that takes as long as the frame number of the envelope says, in
// microseconds.
type paced struct{ stage1.Generator }

func (p paced) Generate(m *group.Mesh, e *wire.Envelope) (stage1.Output, error) {
	began := time.Now()
	out, err := p.Generator.Generate(m, e)
	rest(began, time.Duration(e.CurrentStartFrame)*time.Microsecond)
	return out, err
}

// rest waits until d after began.
func rest(began time.Time, d time.Duration) { <-time.After(time.Until(began.Add(d))) }

// pacedChunk is a chunk whose phases take a given time.
type pacedChunk struct {
	*chunk
	prepare, decode time.Duration
}

func (c *pacedChunk) Prepare() (*wire.Envelope, error) {
	began := time.Now()
	e, err := c.chunk.Prepare()
	rest(began, c.prepare)
	return e, err
}

func (c *pacedChunk) Decode(r *wire.Result) error {
	rest(time.Now(), c.decode)
	return c.chunk.Decode(r)
}

// BenchmarkPipelineOverlap fails unless the stages overlap, whichever is longer. Stage 0 takes
// prepare + decode, stage 1 generate.
func BenchmarkPipelineOverlap(b *testing.B) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		prepare, generate, decode time.Duration
		want                      pipeline.Signature
	}{
		"stage=1-bound": {6 * ms, 40 * ms, 8 * ms, pipeline.Stage1Bound},
		"stage=0-bound": {18 * ms, 16 * ms, 22 * ms, pipeline.Stage0Bound},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				r := overlap(b, 60, c.prepare, c.generate, c.decode)
				b.ReportMetric(r.OverlapScore, "overlap")
				b.ReportMetric(float64(r.Period.Microseconds())/1e3, "period-ms")
				b.ReportMetric(float64(max(r.Stage0, r.Stage1).Microseconds())/1e3, "longer-stage-ms")
				longer := max(r.Stage0, r.Stage1)
				if r.OverlapScore < pipeline.PassScore || r.Signature != c.want {
					b.Errorf("%+v: the score must be at least %v, the signature %s", r, pipeline.PassScore, c.want)
				}
				if r.MaxInFlight > pipeline.DIn || r.MaxReady > pipeline.DOut {
					b.Errorf("%+v: the queues exceed %d and %d", r, pipeline.DIn, pipeline.DOut)
				}
				if r.Period > longer+longer/10 {
					b.Errorf("%+v: the period exceeds the longer stage by more than 10%%", r)
				}
			}
		})
	}
}

func overlap(b *testing.B, n int, prepare, generate, decode time.Duration) pipeline.Report {
	b.Helper()
	source := &chunks{}
	var last *pacedChunk
	for range n {
		pace := func(e *wire.Envelope) { e.CurrentStartFrame = generate.Microseconds() }
		last = &pacedChunk{newChunk(pace), prepare, decode}
		source.all = append(source.all, last)
	}
	o := options(nil, command(b, "paced"), io.Discard)
	o.Source = source
	g, err := stage0.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	if err := <-last.end; err != nil {
		b.Fatal(err)
	}
	r, _ := g.Report()
	return r
}

// BenchmarkPipelineTransfer compares messages with a tensor of 16 MiB with copies of the same
// bytes over the same TLS.
func BenchmarkPipelineTransfer(b *testing.B) {
	const size = 16 << 20
	x := make([]float32, size/2)
	for i := range x {
		x[i] = float32(i % 251)
	}
	r := &wire.Result{Version: wire.Version, Tensors: []wire.Tensor{wire.BF16s("latents_out", x, 1, 1, 1, len(x))}}
	send := func(c *link.Conn) error {
		p, err := wire.PrepareResult(r, wire.Latent())
		if err != nil {
			return err
		}
		return c.Send(p)
	}
	receive := func(c *link.Conn) error {
		h, err := c.Header(time.Now().Add(time.Minute))
		if err != nil {
			return err
		}
		body, err := c.Body()
		if err != nil {
			return err
		}
		got, err := wire.ReadResult(body, h, wire.Latent())
		if err != nil {
			return err
		}
		return got.Validate(wire.Latent())
	}
	a, z := tlsPipe(b)
	ca, cz := link.New(a, time.Minute), link.New(z, time.Minute)
	bareA, bareZ := tlsPipe(b)
	buf := make([]byte, size)
	measure := func(send, receive func() error) time.Duration {
		began := time.Now()
		sent := make(chan error, 1)
		go func() { sent <- send() }()
		if err := receive(); err != nil {
			b.Fatal(err)
		}
		if err := <-sent; err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	for range b.N {
		var messages, bare []time.Duration
		for range 100 {
			messages = append(messages, measure(func() error { return send(ca) }, func() error { return receive(cz) }))
			bare = append(bare, measure(func() error {
				_, err := bareA.Write(r.Tensors[0].Data)
				return err
			}, func() error {
				_, err := io.ReadFull(bareZ, buf)
				return err
			}))
		}
		p99 := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)-2] }
		m, c := p99(messages), p99(bare)
		b.ReportMetric(float64(m.Microseconds())/1e3, "message-p99-ms")
		b.ReportMetric(float64(c.Microseconds())/1e3, "bare-p99-ms")
		if m > 2*c {
			b.Errorf("a message takes %v at the 99th percentile, a bare copy %v: at most twice as long", m, c)
		}
	}
}

// tlsPipe returns both ends of a TLS connection over loopback.
func tlsPipe(b *testing.B) (client, server net.Conn) {
	b.Helper()
	c, err := link.NewCredential(time.Now())
	if err != nil {
		b.Fatal(err)
	}
	config, err := c.Config()
	if err != nil {
		b.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		if server, err = l.Accept(); err == nil {
			err = server.(*tls.Conn).Handshake()
		}
		accepted <- err
	}()
	client, err = (&tls.Dialer{Config: config}).DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	if err := <-accepted; err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}
