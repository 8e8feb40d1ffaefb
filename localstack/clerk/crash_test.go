package clerk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/rollout"
)

// errCrash is what a process meets after its end.
var errCrash = errors.New("the process has ended")

// crashing is a bucket for a process that ends at its n-th put: before the object is
// there or, with late, after that. Puts whose object exists count.
type crashing struct {
	blob.Store
	left *atomic.Int64
	late bool
}

func newCrashing(of blob.Store, n int, late bool) crashing {
	c := crashing{of, new(atomic.Int64), late}
	c.left.Store(int64(n))
	return c
}

func (c crashing) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	left := c.left.Add(-1)
	if left < 0 || left == 0 && !c.late {
		return blob.Info{}, errCrash
	}
	info, err := c.Store.Put(ctx, key, r, o)
	if left == 0 {
		err = errCrash
	}
	return info, err
}

func (c crashing) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if c.left.Load() <= 0 {
		return nil, blob.Info{}, errCrash
	}
	return c.Store.Get(ctx, key, o)
}

// cut ends a process after the first n bytes of lines.
type cut struct {
	to   io.Writer
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) > c.left {
		return 0, errCrash
	}
	c.left -= len(p)
	return c.to.Write(p)
}

// everyCrash appends a stage with a crash at each of its edges before it succeeds: in the
// lines, and before and after each object.
func (b *bench) everyCrash(number int) (crashes int) {
	b.Helper()
	for _, bytes := range []int{0, 2000} {
		cutAt := func(w io.Writer) io.Writer { return &cut{w, bytes} }
		if _, err := b.appendStage(b.bucket, number, cutAt); err != nil {
			if !errors.Is(err, errCrash) {
				b.Fatal(err)
			}
			crashes++
		}
	}
	for n := 1; ; n++ {
		for _, late := range []bool{false, true} {
			_, err := b.appendStage(newCrashing(b.bucket, n, late), number, plainly)
			if err == nil {
				return crashes
			}
			if !errors.Is(err, errCrash) {
				b.Fatalf("stage %d after a crash at put %d: %v", number, n, err)
			}
			crashes++
		}
	}
}

// TestCrashesAtEveryEdgeChangeNothing ends the process at the edges of every stage: after
// a part of its lines, and before and after each object that it writes.
func TestCrashesAtEveryEdgeChangeNothing(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	undisturbed := newBench(t, c, tickets, clerks(t))
	undisturbed.run()
	if n := len(undisturbed.reflections()); n < 3 {
		t.Fatalf("the run has only %d reflections", n)
	}
	b := newBench(t, c, tickets, clerks(t))
	crashes := 0
	for number := 1; ; number++ {
		crashes += b.everyCrash(number)
		if !b.stage(b.bucket, number, plainly) {
			break
		}
	}
	b.publish()
	t.Logf("%d crashes in %d stages", crashes, len(b.stages()))
	same(t, "with crashes", b.objects(), undisturbed.objects())
	b.sameRequests(undisturbed)
}

// sameRequests checks that a run sent the requests of another one, each once.
func (b *bench) sameRequests(want *bench) {
	b.Helper()
	if len(b.bodies) != len(want.bodies) {
		b.Errorf("%d items were asked, want %d", len(b.bodies), len(want.bodies))
	}
	for id, body := range want.bodies {
		if b.calls[id] != 1 {
			b.Errorf("the model was asked %d times about %s", b.calls[id], id)
		}
		if string(b.bodies[id]) != string(body) {
			b.Errorf("the request of %s is\n%s\nwant\n%s", id, b.bodies[id], body)
		}
	}
}

// TestConcurrentAppendsMakeTheSameObjects appends each stage in four calls at once.
func TestConcurrentAppendsMakeTheSameObjects(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	alone := newBench(t, c, tickets, clerks(t))
	alone.run()
	b := newBench(t, c, tickets, clerks(t))
	for number := 1; ; number++ {
		var calls errgroup.Group
		for range 4 {
			calls.Go(func() error {
				_, err := b.appendStage(b.bucket, number, plainly)
				return err
			})
		}
		b.check(calls.Wait())
		if !b.stage(b.bucket, number, plainly) {
			break
		}
	}
	b.publish()
	same(t, "appended by several at once", b.objects(), alone.objects())
}

// TestReflectionOnAnOldStepIsRefused is I7: a step that exists with another content was
// made from the same step by something else, and the run does not go on with its own.
func TestReflectionOnAnOldStepIsRefused(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	const key = "work/" + string(testRun) + "/rollout/guidance/refunds/000001.json"
	const other = `{"another":"step"}`
	_, err := b.bucket.Put(t.Context(), key, strings.NewReader(other), blob.PutOptions{})
	b.check(err)
	for number := 1; ; number++ {
		lines, err := b.appendStage(b.bucket, number, plainly)
		if fault.Is(err, fault.Corrupt) {
			last := b.stages()[number-2]
			if last.Kind != rollout.Confirming || last.Guidance["refunds"] != 0 {
				t.Errorf("the refusal came after %s, with step %d", last.Kind, last.Guidance["refunds"])
			}
			break
		}
		b.check(err)
		if len(lines) == 0 {
			t.Fatal("the run ended with the step of something else")
		}
		b.ask(number, lines)
	}
	if got := b.object(key); got != other {
		t.Errorf("the step was overwritten: %s", got)
	}
}

// TestC43 resumes runs after each stage in a new process, in which batches are cut for
// another number of workers, and asks for more of a run that is complete.
func TestC43ResumesWithAnotherNumberOfWorkers(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Runner.Parallelism = 8
	want := newBench(t, c, tickets, clerks(t))
	want.run()
	b := newBench(t, c, tickets, clerks(t))
	number := 1
	for ; b.stage(b.bucket, number, plainly); number++ {
		b.shuffle = uint64(number)
		own := *b.manifest.Config.Runner
		own.Parallelism = []int{8, 3, 1}[number%3]
		b.manifest.Config.Runner = &own
	}
	before := b.objects()
	for range 2 {
		if lines, err := b.appendStage(b.bucket, number, plainly); err != nil || len(lines) > 0 {
			t.Errorf("a complete run goes on with %.100q, %v", lines, err)
		}
	}
	same(t, "after asking a complete run for more", b.objects(), before)
	b.publish()
	same(t, fmt.Sprintf("resumed %d times", number), b.objects(rollout.AttemptsFile), want.objects(rollout.AttemptsFile))
	b.sameRequests(want)
}
