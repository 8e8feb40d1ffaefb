package cli

import (
	"context"
	"log/slog"

	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/observe/probes"
)

// serveProbes serves the worker's metrics and health probes at the address until the
// returned function is called. Without an address it does nothing.
func serveProbes(ctx context.Context, addr string, s *workplace, m *meter.Meter) (end func() error, err error) {
	if addr == "" {
		return func() error { return nil }, nil
	}
	at, token, err := listen.Open(ctx, addr, s.secrets)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "--metrics")
	}
	p := &s.ports
	p.Watch.Liveness = observe.NewLiveness(p.Clock, s.deployment.Health.SelfFence.Std(), 1)
	v := probes.Probes{Ping: p.Docs.Ping, Liveness: p.Watch.Liveness, Metrics: m.Handler()}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- listen.Serve(ctx, at, listen.Guard(token, v.Handler(), probes.PublicPaths...)) }()
	p.Log.InfoContext(ctx, "serving metrics", slog.String("address", at.Addr().String()))
	return func() error { cancel(); return <-done }, nil
}
