package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/secret"
)

// probed returns a check whose probe takes a time and then returns err.
func probed(name string, takes time.Duration, err error, remedy string) Check {
	return Check{Name: name, Limit: 10 * time.Second, Remedy: func(error) string { return remedy },
		Probe: func(ctx context.Context) (string, error) {
			select {
			case <-time.After(takes):
				return "a fact", err
			case <-ctx.Done():
				return "", fault.WithKind(fault.Canceled, ctx.Err(), "ask")
			}
		}}
}

// runAllOutcomes runs one check for each possible outcome.
func runAllOutcomes(ctx context.Context, tell func(Result)) Report {
	refused := &fault.Error{
		Kind:   fault.Denied,
		Op:     "put",
		Remedy: "the driver's",
		Err:    &fault.Error{Op: "put object x", Err: errors.New("403 <Forbidden>")},
	}
	return Run(ctx, []Check{
		probed("fine", 12*time.Millisecond, nil, ""),
		probed("refused", 31*time.Millisecond, refused, "the check's"),
		probed("refused, and says why", 0, refused, ""),
		probed("refused before it asked", 0, fault.Wrap(fmt.Errorf("sdk: %w", refused), "list"), ""),
		probed("silent", time.Hour, nil, "look at the network"),
		probed("broken", 0, errors.New("broken"), ""),
		probed("fine again", 0, nil, ""),
	}, clock.System{}, tell)
}

func TestReportJSONIsStable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		report := runAllOutcomes(t.Context(), func(r Result) { told = append(told, r.Name) })
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		const want = `{
  "checks": [
    {
      "name": "fine",
      "status": "pass",
      "latency_ms": 12,
      "found": "a fact"
    },
    {
      "name": "refused",
      "status": "fail",
      "latency_ms": 31,
      "error": "put: put object x: 403 \u003cForbidden\u003e (the check's)"
    },
    {
      "name": "refused, and says why",
      "status": "fail",
      "latency_ms": 0,
      "error": "put: put object x: 403 \u003cForbidden\u003e (the driver's)"
    },
    {
      "name": "refused before it asked",
      "status": "skip",
      "latency_ms": 0,
      "note": "list: sdk: put: put object x: 403 \u003cForbidden\u003e",
      "follows": "refused, and says why"
    },
    {
      "name": "silent",
      "status": "fail",
      "latency_ms": 10000,
      "error": "it took longer than 10s: ask: context deadline exceeded (look at the network)"
    },
    {
      "name": "broken",
      "status": "fail",
      "latency_ms": 0,
      "error": "broken"
    },
    {
      "name": "fine again",
      "status": "pass",
      "latency_ms": 0,
      "found": "a fact"
    }
  ],
  "summary": {
    "pass_count": 2,
    "fail_count": 4,
    "skip_count": 1,
    "total_latency_ms": 10043
  }
}`
		if d := cmp.Diff(want, string(text)); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		if !slices.Equal(told, []string{
			"fine", "refused", "refused, and says why", "refused before it asked", "silent", "broken", "fine again",
		}) {
			t.Errorf("the callback got %q", told)
		}
	})
}

func TestTextPrinterShowsChecksAndRemedies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := TextPrinter{Out: &out}
		write := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		report := runAllOutcomes(t.Context(), func(r Result) { write(h.Result(r)) })
		write(h.Summary(report.Summary))
		const want = `✓ fine                      12 ms  a fact
✗ refused                   31 ms
    put: put object x: 403 <Forbidden>
    → the check's
✗ refused, and says why       0 ms
    put: put object x: 403 <Forbidden>
    → the driver's
– refused before it asked       0 ms
    list: sdk: put: put object x: 403 <Forbidden>
    → first do what refused, and says why says
✗ silent                 10000 ms
    it took longer than 10s: ask: context deadline exceeded
    → look at the network
✗ broken                     0 ms
    broken
✓ fine again                 0 ms  a fact
2 pass, 4 fail, 1 skipped — total 10043 ms
`
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		h.Colours = true
		out.Reset()
		write(h.Result(report.Checks[0]))
		write(h.Summary(report.Summary))
		const coloured = "\x1b[32m✓\x1b[0m fine                      12 ms  \x1b[2ma fact\x1b[0m\n" +
			"\x1b[31m2 pass, 4 fail, 1 skipped — total 10043 ms\x1b[0m\n"
		if d := cmp.Diff(coloured, out.String()); d != "" {
			t.Errorf("in colours (-want +got)\n%s", d)
		}
	})
}

// corrupting is a bucket whose Get passes the stored bytes through a function.
type corrupting struct {
	blob.Store
	get func([]byte) ([]byte, error)
}

func (m corrupting) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := m.Store.Get(ctx, key, o)
	if err != nil {
		return r, info, err
	}
	b, err := io.ReadAll(r)
	if err == nil {
		b, err = m.get(b)
	}
	return io.NopCloser(bytes.NewReader(b)), info, err
}

func TestObjectProbesVerifyAndRemoveObjects(t *testing.T) {
	t.Parallel()
	same := func(b []byte) ([]byte, error) { return b, nil }
	for name, c := range map[string]struct {
		get  func([]byte) ([]byte, error)
		want string
	}{
		"bucket works":         {same, ""},
		"bucket loses bytes":   {func(b []byte) ([]byte, error) { return b[1:], nil }, "get: "},
		"bucket changes bytes": {func(b []byte) ([]byte, error) { b[len(b)/2] ^= 1; return b, nil }, "get: "},
		"bucket denies reads":  {func([]byte) ([]byte, error) { return nil, fault.New(fault.Denied, "no") }, "get: no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := memory.NewBucket(clock.System{})
			bucket := corrupting{b, c.get}
			for _, probe := range []func(context.Context) (string, error){object(bucket), contentID(bucket, 1<<20)} {
				_, err := probe(t.Context())
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
			if left, err := b.List(t.Context(), "", "", 10); err != nil || len(left) > 0 {
				t.Errorf("left %v (%v)", left, err)
			}
		})
	}
}

// TestObjectProbeRemovesObjectAfterTimeout checks the cleanup after the probe's
// context has ended.
func TestObjectProbeRemovesObjectAfterTimeout(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := memory.NewBucket(clock.System{})
	_, err := object(corrupting{b, func([]byte) ([]byte, error) { cancel(); return nil, ctx.Err() }})(ctx)
	if !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := b.List(t.Context(), "", "", 10); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
}

func TestQueueProbeReturnsMessageOfAnotherDoctor(t *testing.T) {
	t.Parallel()
	q := memory.NewQueues(clock.System{})
	if err := q.Send(t.Context(), host.DoctorQueue, [][]byte{[]byte("another's")}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := message(q)(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), host.DoctorQueue, queue.MaxBatch, time.Minute, 0)
	if err != nil || len(got) != 1 || string(got[0].Body) != "another's" {
		t.Errorf("in the queue: %v, %v", got, err)
	}
}

// vault holds one secret.
type vault struct{}

func (vault) Get(_ context.Context, name string) (secret.Value, error) {
	if name != "hf-token" {
		return secret.Value{}, fault.New(fault.NotFound, "no secret %s", name)
	}
	return secret.NewValue("s3cr3t"), nil
}

func TestSecretProbeReadsFirstSecretWithoutShowingIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		allowed []string
		want    string // of the error
	}{
		"first secret exists":  {[]string{"hf-token", "missing"}, ""},
		"first secret missing": {[]string{"missing", "hf-token"}, "read: no secret missing"},
		"empty allowlist":      {nil, "the allowlist is empty"},
	} {
		found, err := firstSecret(vault{}, c.allowed)(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			strings.Contains(found, "s3cr3t") {
			t.Errorf("%s: %q, %v; want %q", name, found, err, c.want)
		}
	}
}
