package rollout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/rollout"
)

const promotedRun = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// steps returns a bucket with the steps 0 to n of mission m, of which n is promoted.
func steps(t *testing.T, n int) *failingBucket {
	t.Helper()
	b := &failingBucket{Store: memory.NewBucket(clock.Fixed(noon))}
	g, err := guidance.New("m", "Decide.", nil)
	for step := 0; step <= n && err == nil; step++ {
		if step > 0 {
			g.Step, g.From = step, g.ContentID().String()
			g.Entries = append(g.Entries, guidance.Entry{Text: fmt.Sprintf("Rule %d.", step)})
		}
		err = b.save(t.Context(), rollout.GuidanceKey(promotedRun, "m", step), g)
	}
	if err == nil {
		err = b.save(t.Context(), rollout.PromotedKey(promotedRun, "m"), g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// failingBucket fails puts of one key.
type failingBucket struct {
	blob.Store
	fails string
}

func (b *failingBucket) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if key == b.fails {
		return blob.Info{}, fault.New(fault.Unavailable, "no connection")
	}
	return b.Store.Put(ctx, key, r, o)
}

func (b *failingBucket) save(ctx context.Context, key string, g guidance.Guidance) error {
	_, err := b.Put(ctx, key, bytes.NewReader(g.Encode()), blob.PutOptions{})
	return err
}

// promotions returns the list of promotions as "step instead of step", and the promoted step.
func (b *failingBucket) promotions(t *testing.T) (list []string, promoted int) {
	t.Helper()
	var all []rollout.Promotion
	raw, err := input.ReadObject(t.Context(), b, rollout.PromotionsKey(promotedRun, "m"), 1<<20)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	for _, p := range all {
		list = append(list, fmt.Sprintf("%d instead of %d", p.Step, p.Instead))
	}
	g, err := rollout.ReadPromoted(t.Context(), b, promotedRun, "m")
	if err != nil {
		t.Fatal(err)
	}
	return list, g.Step
}

func TestPromotionsAreNotedInTheirOrder(t *testing.T) {
	t.Parallel()
	b := steps(t, 3)
	for _, c := range []struct{ step, instead int }{{1, 3}, {1, 1}, {2, 1}, {3, 2}} {
		instead, err := rollout.Promote(t.Context(), b, promotedRun, "m", c.step, noon)
		if err != nil || instead != c.instead {
			t.Errorf("step %d: promoted instead of %d, %v; want %d", c.step, instead, err, c.instead)
		}
	}
	if list, now := b.promotions(t); fmt.Sprint(list) != "[1 instead of 3 2 instead of 1 3 instead of 2]" || now != 3 {
		t.Errorf("%q, and %d is promoted", list, now)
	}
	if _, err := rollout.Promote(t.Context(), b, promotedRun, "m", 4, noon); !fault.Is(err, fault.NotFound) {
		t.Errorf("a step that does not exist: %v", err)
	}
}

func TestAPromotionThatFailedIsRepeated(t *testing.T) {
	t.Parallel()
	b := steps(t, 2)
	b.fails = rollout.PromotedKey(promotedRun, "m")
	if _, err := rollout.Promote(t.Context(), b, promotedRun, "m", 0, noon); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the put failed, and Promote returns %v", err)
	}
	if list, now := b.promotions(t); len(list) != 1 || now != 2 {
		t.Errorf("%q, and %d is promoted", list, now)
	}
	b.fails = ""
	if _, err := rollout.Promote(t.Context(), b, promotedRun, "m", 0, noon.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if list, now := b.promotions(t); fmt.Sprint(list) != "[0 instead of 2]" || now != 0 {
		t.Errorf("%q, and %d is promoted", list, now)
	}
}

func TestNewestStepCountsByNumber(t *testing.T) {
	t.Parallel()
	b := steps(t, 11)
	if n, err := rollout.NewestStep(t.Context(), b, promotedRun, "m", -1); n != 11 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := rollout.NewestStep(t.Context(), b, promotedRun, "other", -1); !fault.Is(err, fault.NotFound) {
		t.Errorf("a mission without guidance: %v", err)
	}
}
