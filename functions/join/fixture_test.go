package join

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"rollout/shared/ca"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/remote"
	"rollout/shared/secret"
)

// fixture is a server at a port of this machine.
type fixture struct {
	*Server
	address   string
	authority *ca.Authority
}

// deployment returns one with a pool that answers, that which trains, and secrets.
func deployment(t testing.TB) config.Deployment {
	t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte(`
schema_version = 1
secrets = ["hf-token", "hook"]

[notify]
webhook = "https://example.com/rollout"
secret = "hook"

[[pool]]
name = "small"
model = "tiny"
`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newFixture starts a server over stores in memory.
func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	a, _, err := ca.Open(t.TempDir()+"/tls", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Ports: hosttest.New(), Secrets: secretsOf{"hf-token": "s3cr3t", "hook": "key"},
		Deployment: deployment(t), Config: []byte("schema_version = 1\n"), Authority: a}
	for _, c := range change {
		c(&o)
	}
	s := New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &fixture{Server: s, address: l.Addr().String(), authority: a}
}

// token returns a token for a pool.
func (f *fixture) token(t testing.TB, pool string) ca.Token {
	t.Helper()
	token, _, err := f.members.NewToken(t.Context(), time.Hour, pool)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// options are those of a worker with a folder of its own.
func (f *fixture) options(t testing.TB, token ca.Token) remote.Options {
	return remote.Options{Address: f.address, Dir: t.TempDir(), Token: token, Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler)}
}

// join returns a client of a worker that has joined a pool.
func (f *fixture) join(t testing.TB, pool string) *remote.Client {
	t.Helper()
	c, closeClient, err := remote.Join(t.Context(), f.options(t, f.token(t, pool)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeClient() })
	return c
}

// unguarded lets the server's callers use empty ports without rights, for the ports' own suites.
func (f *fixture) unguarded() {
	empty := hosttest.New() // its documents are not those of the members
	f.portsOf = func(context.Context) ports { return ports{empty.Docs, empty.Blobs, empty.Queues, f.Secrets} }
}

// secretsOf is a secret.Store of these secrets, by name.
type secretsOf map[string]string

func (s secretsOf) Get(_ context.Context, name string) (secret.Value, error) {
	text, ok := s[name]
	if !ok {
		return secret.Value{}, fault.New(fault.NotFound, "the secret %s is not set", name)
	}
	return secret.NewValue(text), nil
}
