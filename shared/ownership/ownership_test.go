package ownership

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// installationAt returns a new installation over the bucket.
func installationAt(place string, objects blob.Store) Bucket {
	p := hosttest.New()
	p.Blobs = objects
	return Bucket{Ports: p, Place: place, Remedy: "take another one",
		Address: func(key string) string { return "b/" + key }}
}

// wantForeign fails unless the error says whose the bucket is and what to do.
func wantForeign(t *testing.T, err error, owner string) {
	t.Helper()
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v, want Invalid", err)
		return
	}
	for _, part := range []string{owner, "take another one", "remove b/" + record.OwnerKey} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q lacks %q", err, part)
		}
	}
}

func TestSecondInstallationIsRefused(t *testing.T) {
	t.Parallel()
	objects := memory.NewBucket(clock.System{})
	first, second := installationAt("/first", objects), installationAt("/second", objects)
	if err := second.Check(t.Context()); err != nil {
		t.Errorf("a bucket without an owner: %v", err)
	}
	for range 2 {
		if err := first.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Check(t.Context()); err != nil {
		t.Errorf("the owner: %v", err)
	}
	wantForeign(t, second.Claim(t.Context()), "/first")
	wantForeign(t, second.Check(t.Context()), "/first")
	own := installationAt("/second", memory.NewBucket(clock.System{}))
	own.Docs = second.Docs
	if err := own.Claim(t.Context()); err != nil { // its own bucket
		t.Error(err)
	}
	wantForeign(t, second.Claim(t.Context()), "/first") // also once it has an id
	second.Docs = nil                                   // before its first start
	wantForeign(t, second.Check(t.Context()), "/first")
}

// The documents came from a backup or a copy, and the bucket from a copy or another mount.
func TestMovedInstallationKeepsItsBucket(t *testing.T) {
	t.Parallel()
	was := installationAt("/old", memory.NewBucket(clock.System{}))
	if err := was.Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	is := installationAt("/new", memory.NewBucket(clock.System{}))
	is.Docs = was.Docs
	hosttest.Put(t, is.Ports, record.OwnerKey, hosttest.Object(t, was.Ports, record.OwnerKey))
	if err := is.Claim(t.Context()); err != nil {
		t.Error(err)
	}
	bare := installationAt("/bare", memory.NewBucket(clock.System{})) // the mark was not copied
	bare.Docs = was.Docs
	if err := bare.Claim(t.Context()); err != nil {
		t.Error(err)
	}
	if err := bare.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestInstallationWithoutIDMayAdoptTheBucket(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		adopts bool
		err    error
	}{"it is its own": {true, nil}, "it is another's": {false, nil}, "nothing tells": {false, broken}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := memory.NewBucket(clock.System{})
			if err := installationAt("/owner", objects).Claim(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := installationAt("/restored", objects)
			b.Adopts = func(_ context.Context, m Mark) (bool, error) {
				if m.Place != "/owner" {
					t.Errorf("asked about %+v", m)
				}
				return c.adopts, c.err
			}
			err := b.Claim(t.Context())
			b.Adopts = nil // asked once
			later := b.Check(t.Context())
			switch {
			case c.err != nil:
				if !errors.Is(err, c.err) {
					t.Errorf("got %v", err)
				}
			case c.adopts:
				if err != nil || later != nil {
					t.Errorf("got %v, and then %v", err, later)
				}
			default:
				wantForeign(t, err, "/owner")
				wantForeign(t, later, "/owner")
			}
		})
	}
}

func TestOneOfConcurrentInstallationsOwnsTheBucket(t *testing.T) {
	t.Parallel()
	objects := memory.NewBucket(clock.System{})
	const installations, processes = 4, 3
	errs := make([][]error, installations)
	var all sync.WaitGroup
	for n := range installations {
		b := installationAt("/some", objects)
		errs[n] = make([]error, processes)
		for p := range processes {
			all.Go(func() { errs[n][p] = b.Claim(t.Context()) })
		}
	}
	all.Wait()
	owners := 0
	for _, same := range errs {
		if same[0] == nil {
			owners++
		}
		for _, err := range same {
			if (err == nil) != (same[0] == nil) {
				t.Errorf("processes of one installation got %v", same)
			}
		}
	}
	if owners != 1 {
		t.Errorf("%d owners, want 1", owners)
	}
}

// The state at a place was restored from another one's backup, or begun anew. Another
// machine may have the place as well, and another state.
func TestInstallationThatReplacesAnotherAtItsPlaceOwnsTheBucket(t *testing.T) {
	t.Parallel()
	objects := memory.NewBucket(clock.System{})
	first, second := installationAt("/data", objects), installationAt("/data", objects)
	elsewhere, cloud := installationAt("/data", objects), installationAt("/data", objects)
	first.Host, second.Host, elsewhere.Host = "a", "a", "b"
	if err := first.Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := second.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantForeign(t, elsewhere.Claim(t.Context()), "/data")
	wantForeign(t, cloud.Claim(t.Context()), "/data")
	first.Place = "/moved" // the former state, kept and started elsewhere
	wantForeign(t, first.Claim(t.Context()), "/data")
}

func TestUnreadableMarkIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{}", "x", `{"schema":99,"installation":"a"}`} {
		b := installationAt("/x", memory.NewBucket(clock.System{}))
		hosttest.Put(t, b.Ports, record.OwnerKey, text)
		if err := b.Claim(t.Context()); err == nil || !strings.Contains(err.Error(), "b/"+record.OwnerKey) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// counting counts the reads of a bucket, and fails the first ones.
type counting struct {
	blob.Store
	gets, failures int
}

func (c *counting) Get(ctx context.Context, key string, o blob.GetOptions) (r io.ReadCloser, i blob.Info,
	err error) {
	if c.gets++; c.gets <= c.failures {
		return nil, i, fault.New(fault.Unavailable, "not now")
	}
	return c.Store.Get(ctx, key, o)
}

func TestClaimOnceRemembersSuccessAlone(t *testing.T) {
	t.Parallel()
	objects := &counting{Store: memory.NewBucket(clock.System{}), failures: 2}
	claim := installationAt("/x", objects).ClaimOnce()
	for n := range 5 {
		if err := claim(t.Context()); (err != nil) != (n < 2) || err != nil && !fault.Is(err, fault.Unavailable) {
			t.Errorf("call %d: %v", n, err)
		}
	}
	if objects.gets != 3 {
		t.Errorf("%d reads, want 3", objects.gets)
	}
}
