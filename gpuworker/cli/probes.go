package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"

	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/observe/probes"
)

// AddTLSFlags adds the flags that say how a server proves who it is.
func AddTLSFlags(fs *pflag.FlagSet, t *listen.TLS) {
	fs.StringVar(&t.CertFile, "tls-cert", "", "speak TLS with the certificate in this `file` (PEM)")
	fs.StringVar(&t.KeyFile, "tls-key", "", "the `file` with the key of --tls-cert (PEM)")
	fs.BoolVar(&t.Plain, "plain-http", false,
		"speak plain HTTP also to other machines, because a proxy before it speaks TLS")
}

// serveProbes serves the worker's metrics and health probes at the address until the
// returned function is called. Without an address it does nothing.
func serveProbes(ctx context.Context, addr string, encryption listen.TLS, s *workplace, m *meter.Meter) (
	end func() error, err error) {
	if addr == "" {
		return func() error { return nil }, nil
	}
	at, token, err := listen.Open(ctx, addr, s.secrets, encryption)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "--metrics")
	}
	p := &s.ports
	p.Watch.Liveness = observe.NewLiveness(p.Clock, s.deployment.Health.SelfFence.Std(), 1)
	v := probes.Probes{Ping: p.Docs.Ping, Liveness: p.Watch.Liveness, Metrics: m.Handler()}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- listen.Serve(ctx, at, listen.Guard(token, v.Handler(), probes.PublicPaths...)) }()
	p.Log.InfoContext(ctx, "serving metrics", slog.String("address", listen.URL(at)))
	return func() error { cancel(); return <-done }, nil
}
