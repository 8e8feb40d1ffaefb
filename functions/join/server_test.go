package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"rollout/shared/blob"
	"rollout/shared/ca"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/remote"
	"rollout/shared/remote/portsv1"
)

// logBuffer collects log lines. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}

// withLog lets the server log into a buffer.
func withLog(b *logBuffer) func(*Options) {
	return func(o *Options) { o.Ports.Log = slog.New(slog.NewTextHandler(b, nil)) }
}

// wantError fails the test unless err has the kind and a text with each of the parts.
func wantError(t *testing.T, err error, kind fault.Kind, parts ...string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("got %v (%v), want %v", err, fault.KindOf(err), kind)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestCertificateIsKeptForLaterStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.options(t, f.token(t, ""))
	for range 2 {
		c, closeClient, err := remote.Join(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := c.Describe(t.Context()); err != nil || string(d.Config) != string(f.Config) {
			t.Errorf("the config is %q (%v)", d.Config, err)
		}
		if err := closeClient(); err != nil {
			t.Fatal(err)
		}
		o.Token = ca.Token{}
	}
	all, err := f.members.All(t.Context())
	if err != nil || len(all) != 1 {
		t.Errorf("%d members (%v), want 1", len(all), err)
	}
	info, err := os.Stat(filepath.Join(o.Dir, "worker.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the worker's key has mode %v (%v)", info.Mode(), err)
	}
}

func TestJoiningIsRefused(t *testing.T) {
	t.Parallel()
	other := newFixture(t)
	for name, c := range map[string]struct {
		token func(t *testing.T, f *fixture) ca.Token
		kind  fault.Kind
		parts []string
		said  string // by the server; "" if it did not meet the worker
	}{
		"without a token": {func(*testing.T, *fixture) ca.Token { return ca.Token{} },
			fault.Denied, []string{"has no certificate", "rollout join-token"}, ""},
		"with a token that was never made": {func(_ *testing.T, f *fixture) ca.Token { return f.authority.NewToken() },
			fault.Denied, []string{"the join token is not valid", "rollout join-token"}, "the join token is not valid"},
		"with a token that has ended": {func(t *testing.T, f *fixture) ca.Token {
			token, _, err := f.members.NewToken(t.Context(), time.Nanosecond, "")
			if err != nil {
				t.Fatal(err)
			}
			return token
		}, fault.Denied, []string{"not valid, or no longer"}, "not valid, or no longer"},
		"with a token of another installation": {func(t *testing.T, _ *fixture) ca.Token { return other.token(t, "") },
			fault.Unavailable, []string{"not the one that the token, or the certificate, is of"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			f := newFixture(t, withLog(&log))
			_, _, err := remote.Join(t.Context(), f.options(t, c.token(t, f)))
			wantError(t, err, c.kind, c.parts...)
			if c.said != "" && log.count(c.said) != 1 {
				t.Errorf("the server's log says %q %d times, want one line", c.said, log.count(c.said))
			}
		})
	}
}

func TestCertificateIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("of another authority", func(t *testing.T) {
		t.Parallel()
		var log logBuffer
		f := newFixture(t, withLog(&log))
		o := f.options(t, f.token(t, ""))
		_, closeClient, err := remote.Join(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_ = closeClient()
		strange, _, err := ca.Open(t.TempDir()+"/tls", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		forge(t, o.Dir, strange)
		o.Token = ca.Token{}
		_, _, err = remote.Join(t.Context(), o)
		wantError(t, err, fault.Unavailable, "not the one that the token, or the certificate, is of")
	})
	t.Run("that is revoked, at once and at a later start", func(t *testing.T) {
		t.Parallel()
		var log logBuffer
		f := newFixture(t, withLog(&log))
		o := f.options(t, f.token(t, ""))
		c, closeClient, err := remote.Join(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = closeClient() }()
		all, err := f.members.All(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v (%v)", all, err)
		}
		if _, err := f.members.Revoke(t.Context(), all[0].ID); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = c.Documents().Ping(t.Context())
		}
		wantError(t, err, fault.Denied, "revoked", "rollout join-token")
		<-c.Refused()
		wantError(t, c.Refusal(), fault.Denied, "revoked")
		_, _, err = remote.Join(t.Context(), o) // its token has ended with it
		wantError(t, err, fault.Denied, "the join token is not valid")
		if n := log.count("revoked"); n != 1 {
			t.Errorf("the server's log says %d times that it is revoked, want one line", n)
		}
		o.Token = f.token(t, "")
		_, closeAgain, err := remote.Join(t.Context(), o)
		if err != nil {
			t.Fatalf("with another token: %v", err)
		}
		_ = closeAgain()
	})
	t.Run("that has ended, in the middle of a connection", func(t *testing.T) {
		t.Parallel()
		now := &movingClock{}
		f := newFixture(t, func(o *Options) { o.Ports.Clock = now })
		c := f.join(t, "")
		now.advance(ca.ClientLife + time.Minute)
		wantError(t, c.Documents().Ping(t.Context()), fault.Denied, "valid from", "rollout join-token")
	})
}

// forge replaces the authority of a worker's certificate by another one, which signs a new one.
func forge(t *testing.T, dir string, a *ca.Authority) {
	t.Helper()
	f := newFixture(t, func(o *Options) { o.Authority = a })
	o := f.options(t, f.token(t, ""))
	_, closeClient, err := remote.Join(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	_ = closeClient()
	text, err := os.ReadFile(filepath.Join(o.Dir, "worker.pem"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "worker.pem"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// movingClock is a clock that a test moves.
type movingClock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *movingClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *movingClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

var _ clock.Clock = (*movingClock)(nil)

// A certificate whose life is mostly over is renewed, and the worker goes on with the new one.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	now := &movingClock{}
	f := newFixture(t, func(o *Options) { o.Ports.Clock = now })
	o := f.options(t, f.token(t, ""))
	o.Clock = now
	_, closeClient, err := remote.Join(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := closeClient(); err != nil {
		t.Fatal(err)
	}
	before, err := f.members.All(t.Context())
	if err != nil || len(before) != 1 {
		t.Fatalf("%v (%v)", before, err)
	}
	now.advance(ca.ClientLife * 9 / 10)
	o.Token = ca.Token{}
	kept := func() string {
		text, err := os.ReadFile(filepath.Join(o.Dir, "worker.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	old := kept()
	c, closeClient, err := remote.Join(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		after, err := f.members.All(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(after) == 1 && after[0].Until.After(before[0].Until) && kept() != old {
			// The connection that showed the old one is replaced, and its end ends nothing.
			now.advance(ca.ClientLife / 5)
			if err := again(ctx, func() error { return c.Documents().Ping(ctx) }); err != nil {
				t.Errorf("after the end of the old certificate: %v", err)
			}
			return
		}
		if err := f.Ports.Docs.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the certificate was not renewed")
}

// again calls until the call succeeds, or fails otherwise than by a connection that is replaced.
func again(ctx context.Context, call func() error) error {
	for {
		if err := call(); !fault.Is(err, fault.Unavailable) || ctx.Err() != nil {
			return err
		}
	}
}

func TestWorkerMayDoNoMoreThanItsRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.join(t, "small")
	ctx := t.Context()
	docs, objects, queues := c.Documents(), c.Objects(), c.Queues()
	put := func(key string, o blob.PutOptions) error {
		_, err := objects.Put(ctx, key, strings.NewReader("x"), o)
		return err
	}
	create := func(key string) error {
		_, err := docs.Create(ctx, key, []byte("{}"))
		return err
	}
	get := func(key string) error {
		_, _, err := objects.Get(ctx, key, blob.GetOptions{})
		return err
	}
	secret := func(name string) error {
		_, err := c.Secrets().Get(ctx, name)
		return err
	}
	send := func(name string) error { return queues.Send(ctx, name, [][]byte{[]byte("x")}, 0) }
	receive := func(name string) error {
		_, err := queues.Receive(ctx, name, 1, time.Second, 0)
		return err
	}
	for name, err := range map[string]error{
		"create a heartbeat":        create("beat/w"),
		"create a shard":            create("shard/x"),
		"create a limit":            create("limit/small"),
		"create a result":           put("work/r/shards/0/0-1-n", blob.PutOptions{CreateOnly: true}),
		"send to coordinate":        send("coordinate"),
		"send a dead letter":        send("work-small-dead"),
		"receive work":              receive("work-small"),
		"read an allowed secret":    secret("hf-token"),
		"delete its clock's object": objects.Delete(ctx, "pending/clock-1", ""),
	} {
		if err != nil {
			t.Errorf("a worker may not %s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"create a control document":     create("control/r"),
		"create a run":                  create("run/r"),
		"create a coordinator document": create("coordinator/r"),
		"create a snapshot":             create("snapshot/r/1"),
		"create a token":                create("join/token/x"),
		"read a token": func() error {
			_, err := docs.Get(ctx, "join/token/x")
			return err
		}(),
		"read a token among others": func() error {
			_, err := docs.GetMany(ctx, []string{"beat/w", "join/member/x"})
			return err
		}(),
		"list tokens": func() error {
			_, err := docs.List(ctx, "join/", "", 10)
			return err
		}(),
		"list all": func() error {
			_, err := docs.List(ctx, "", "", 10)
			return err
		}(),
		"delete a shard":            docs.Delete(ctx, "shard/x", "1"),
		"overwrite a result":        put("work/r/shards/0/0-1-n", blob.PutOptions{}),
		"create a prompts file":     put("prompts/x.jsonl", blob.PutOptions{CreateOnly: true}),
		"create an output file":     put("runs/r/completions.jsonl", blob.PutOptions{CreateOnly: true}),
		"leave its folder":          put("work/../prompts/x.jsonl", blob.PutOptions{CreateOnly: true}),
		"read the mark of a bucket": get("rollout-installation.json"),
		"delete a result":           objects.Delete(ctx, "work/r/shards/0/0-1-n", ""),
		"copy into prompts": func() error {
			_, err := objects.Copy(ctx, "prompts/x.jsonl", "work/r/shards/0/0-1-n")
			return err
		}(),
		"join what it may not read": func() error {
			_, err := objects.Join(ctx, "work/r/x", []blob.Range{{Key: "rollout-installation.json", Length: 1}})
			return err
		}(),
		"send work":                   send("work-small"),
		"send tasks":                  send("tasks"),
		"receive reports":             receive("coordinate"),
		"receive work of other pools": receive("work-train"),
		"read the webhook's secret":   secret("hook"),
		"read the API's token":        secret("api-token"),
	} {
		if !fault.Is(err, fault.Denied) && !(strings.Contains(name, "leave") && fault.Is(err, fault.Invalid)) {
			t.Errorf("a worker may %s: got %v", name, err)
		}
	}
	if err := c.Refusal(); err != nil {
		t.Errorf("the worker is refused: %v", err)
	}
}

func TestTrainerKeepsSnapshots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	training, _ := f.Deployment.TrainPool()
	c := f.join(t, training.Name)
	rev, err := c.Documents().Create(t.Context(), "snapshot/r/1", []byte("{}"))
	if err == nil {
		err = c.Documents().Delete(t.Context(), "snapshot/r/1", rev)
	}
	if err != nil {
		t.Errorf("a trainer may not keep snapshots: %v", err)
	}
	if _, err := c.Secrets().Get(t.Context(), "hf-token"); !fault.Is(err, fault.Denied) {
		t.Errorf("a trainer may read secrets: %v", err)
	}
}

// An answer of any size is bounded: the rest is asked for again.
func TestManyLargeDocumentsAreRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.join(t, "")
	var keys []string
	for i := range 24 {
		key := "shard/" + string(rune('a'+i))
		keys = append(keys, key)
		if _, err := c.Documents().Create(t.Context(), key, bytes.Repeat([]byte{byte(i)}, 256<<10)); err != nil {
			t.Fatal(err)
		}
	}
	docs, err := c.Documents().GetMany(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range docs {
		if d.Key != keys[i] || len(d.Value) != 256<<10 || d.Value[0] != byte(i) {
			t.Errorf("document %d is %s with %d bytes", i, d.Key, len(d.Value))
		}
	}
}

// A put that breaks off leaves nothing.
func TestBrokenPutLeavesNoObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.join(t, "")
	broken := fault.New(fault.Internal, "the disk is gone")
	_, err := c.Objects().Put(t.Context(), "work/r/x", &failingReader{left: 1 << 20, err: broken},
		blob.PutOptions{CreateOnly: true})
	if err != broken {
		t.Errorf("got %v, want the reader's own error", err)
	}
	if _, err := f.Ports.Blobs.Stat(t.Context(), "work/r/x", ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("the object of a put that broke off: %v, want NotFound", err)
	}
}

// failingReader reads zeros and then fails.
type failingReader struct {
	left int
	err  error
}

func (r *failingReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, r.err
	}
	n := min(len(p), r.left)
	clear(p[:n])
	r.left -= n
	return n, nil
}

// A stream that began before its caller was revoked leaves no object.
func TestRevokedWorkerWritesNoMore(t *testing.T) {
	t.Parallel()
	now := &movingClock{}
	f := newFixture(t, func(o *Options) { o.Ports.Clock = now })
	c := f.join(t, "")
	all, err := f.members.All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v (%v)", all, err)
	}
	r := &revokingReader{revoke: func() {
		if _, err := f.members.Revoke(t.Context(), all[0].ID); err != nil {
			t.Error(err)
		}
		now.advance(checkFor + time.Second)
	}}
	_, err = c.Objects().Put(t.Context(), "work/r/x", r, blob.PutOptions{CreateOnly: true})
	wantError(t, err, fault.Denied, "revoked")
	if _, err := f.Ports.Blobs.Stat(t.Context(), "work/r/x", ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("its object: %v, want NotFound", err)
	}
}

// revokingReader revokes its sender in the middle of an object.
type revokingReader struct {
	chunks int
	revoke func()
}

func (r *revokingReader) Read(p []byte) (int, error) {
	if r.chunks++; r.chunks == 3 {
		r.revoke()
	}
	if r.chunks > 6 {
		return 0, io.EOF
	}
	return len(p), nil
}

// Strangers are refused before their messages are read, are logged once, and don't stay.
func TestStrangersAreRefusedEarly(t *testing.T) {
	t.Parallel()
	var log logBuffer
	f := newFixture(t, withLog(&log))
	settings := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}} // a stranger checks nothing
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(credentials.NewTLS(settings)))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			// The message never ends: only a server that does not wait for it answers.
			stream, err := portsv1.NewObjectsClient(conn).Put(t.Context())
			if err == nil {
				_, err = stream.CloseAndRecv()
			}
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("a stranger's put: %v, want Unauthenticated", err)
			}
		})
	}
	all.Wait()
	if n := log.count("a worker is refused"); n != 1 {
		t.Errorf("the server logs %d lines about strangers of one address, want one", n)
	}
	conn, err := tls.Dial("tcp", f.address, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, net.ErrClosed) &&
		!errors.Is(err, syscall.ECONNRESET) { // it ends without the test's help
		t.Logf("the stranger's connection ended with %v", err)
	}
}

// A worker with another token enrolls again: it may be for another pool.
func TestAnotherTokenGivesAnotherCertificate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o := f.options(t, f.token(t, "small"))
	for _, pool := range []string{"small", "train", "train"} {
		if pool == "train" && o.Token.Secret.Reveal() != "" {
			o.Token = f.token(t, pool)
		}
		c, closeClient, err := remote.Join(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := c.Describe(t.Context()); err != nil || d.Pool != pool ||
			len(d.Pools) != 1 || d.Pools[0] != (remote.Pool{Name: "small", Model: "tiny"}) {
			t.Errorf("it may work for %q of %v (%v), want %q", d.Pool, d.Pools, err, pool)
		}
		if err := closeClient(); err != nil {
			t.Fatal(err)
		}
		if pool == "train" {
			o.Token = ca.Token{}
		}
	}
}
