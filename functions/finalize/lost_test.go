package finalize_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/blob"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
)

// harms are what can happen to an object of a run.
var harms = map[string]func(t *testing.T, p host.Ports, key string){
	"one byte is another": func(t *testing.T, p host.Ports, key string) {
		hosttest.Put(t, p, key, strings.Replace(hosttest.Object(t, p, key), "a", "b", 1))
	},
	"it is shorter": func(t *testing.T, p host.Ports, key string) {
		text := hosttest.Object(t, p, key)
		hosttest.Put(t, p, key, text[:len(text)-1])
	},
	"it is longer": func(t *testing.T, p host.Ports, key string) {
		hosttest.Put(t, p, key, hosttest.Object(t, p, key)+"a")
	},
	"it is gone": func(t *testing.T, p host.Ports, key string) {
		if err := p.Blobs.Delete(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
	},
}

// ways are the ways in which a run is finalized.
var ways = map[string]func(t *testing.T, p host.Ports, s run.State){
	"in one stream": func(t *testing.T, p host.Ports, s run.State) {
		follow(t, p, s, []run.State{s})
	},
	"in segments": func(t *testing.T, p host.Ports, s run.State) {
		hosttest.Save(t, p, record.CoordinatorKey(id), s)
		handleAll(t, p, inSegments(p, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1, MaxShards: 2}))
	},
	"read ahead": func(t *testing.T, p host.Ports, s run.State) {
		hosttest.Save(t, p, record.CoordinatorKey(id), s)
		handleAll(t, p, inSegments(p, finalize.SegmentOptions{}))
	},
}

func follow(t *testing.T, p host.Ports, s run.State, next []run.State) {
	t.Helper()
	f := finalize.New(p, input.NewIndex(p.Blobs, p.Docs), finalize.Options{})
	if err := f.Follow(t.Context(), s, func(context.Context) (s run.State, err error) {
		s, next = next[0], next[1:]
		return s, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The items of a result or a checkpoint that is damaged or gone are error rows of class
// storage, which name the object. All other rows are delivered, and the run ends.
func TestItemsOfALostObjectFailAndAllOthersAreDelivered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what        string
		shard       int
		completions string
	}{
		{"result", 0, "a3\na5\n"},
		{"result", 1, "a0\na1\na5\n"},
		{"checkpoint", 2, "a0\na1\na3\n"},
	} {
		for harmed, harm := range harms {
			for how, write := range ways {
				t.Run(fmt.Sprintf("%s %d, %s, %s", c.what, c.shard, harmed, how), func(t *testing.T) {
					t.Parallel()
					d := newFixture(t)
					key := record.ShardObjectKey(id, c.shard, 1, c.what)
					harm(t, d.Ports, key)
					write(t, d.Ports, state(run.Finalizing, 4))
					if got := d.file(record.CompletionsFile); got != c.completions {
						t.Errorf("completions are %q, want %q", got, c.completions)
					}
					lost := 0
					for row := range strings.Lines(d.file(record.ErrorsFile)) {
						if strings.Contains(row, `"class":"storage"`) {
							own := fmt.Sprintf(`"id":"id-%d"`, 2*c.shard+lost)
							if !strings.Contains(row, own) || !strings.Contains(row, key) {
								t.Errorf("the error row %s lacks %s or %s", row, own, key)
							}
							lost++
						}
					}
					var sum record.Summary
					if err := input.ReadJSON(t.Context(), d.Blobs, record.OutputKey(id, record.SummaryFile), &sum); err != nil {
						t.Fatal(err)
					}
					if lost != 2 || sum.FailedByClass["storage"] != 2 || sum.Completed+sum.Failed != 12 || sum.Phase != "stopped" {
						t.Errorf("%d items are lost, the summary is %+v", lost, sum)
					}
				})
			}
		}
	}
}

// A result that is too large for memory is checked before a byte of it is delivered.
func TestLargeLostResultIsNotDelivered(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{false, true} {
		d := newFixture(t)
		large := strings.Repeat("x", 3<<20)
		d.commit(0, []result.Row{{Item: 0, Bytes: []byte(large + "\n")}, {Item: 1, Bytes: []byte(large + "a\n")}})
		want := large + "\n" + large + "a\na3\na5\n"
		if damaged {
			harms["one byte is another"](t, d.Ports, record.ShardObjectKey(id, 0, 1, "result"))
			want = "a3\na5\n"
		}
		if err := d.finalize(); err != nil {
			t.Fatal(err)
		}
		if got := d.file(record.CompletionsFile); got != want {
			t.Errorf("damaged %v: completions have %d bytes, want %d", damaged, len(got), len(want))
		}
	}
}

// Copies of an answer that is lost fail with it, also where another call writes them.
func TestCopiesOfALostAnswerFail(t *testing.T) {
	t.Parallel()
	for harmed, harm := range harms {
		for how, write := range ways {
			t.Run(harmed+", "+how, func(t *testing.T) {
				t.Parallel()
				a := newDedupeRun(t, 1, []int{0, 1, 1, 0, 1, 0})
				for n := range a.shards() {
					a.commit(t, n, func(int) bool { return false })
				}
				harm(t, a.Ports, record.ShardObjectKey(id, 0, 1, "object"))
				write(t, a.Ports, a.state(run.ReasonDone, a.shards()))
				got := a.outcome(t)
				for item, of := range a.originals {
					if of == 0 && !strings.HasPrefix(got[item], string(fault.Storage)+" ") || of == 1 && got[item] != "answer 1" {
						t.Errorf("item %d, of item %d: %s", item, of, got[item])
					}
				}
				if !slices.Contains(got, "storage item 0 asks the same, was asked for both, and its answer is lost") {
					t.Errorf("the outcomes are %q", got)
				}
			})
		}
	}
}

// endingBlobs is a bucket of a run that another process ends, and frees, before its first
// result is read.
type endingBlobs struct {
	blob.Store
	end func()
}

func (b endingBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if strings.HasPrefix(key, record.ShardObjectsDir(id)) {
		b.end()
	}
	return b.Store.Get(ctx, key, o)
}

// A result that is gone because another process has ended the run is not lost.
func TestResultsThatAnotherProcessFreedAreNotLost(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(f *finalize.Finalizer) error{
		"asked to finalize": func(f *finalize.Finalizer) error {
			return f.Finalize(t.Context(), events.Finalize{Run: string(id)})
		},
		"behind the frontier": func(f *finalize.Finalizer) error {
			err := f.Follow(t.Context(), state(run.Running, 3), nil)
			if !errors.Is(err, finalize.ErrAlreadyFinalized) {
				return fmt.Errorf("follow ended with %w", err)
			}
			return nil
		},
	} {
		d := newFixture(t)
		var logged bytes.Buffer
		p := d.Ports
		p.Log = slog.New(slog.NewTextHandler(&logged, nil))
		p.Blobs = endingBlobs{d.Blobs, func() {
			d.save(run.Stopped, 4)
			for n, what := range []string{"result", "result", "checkpoint"} {
				if err := d.Blobs.Delete(t.Context(), record.ShardObjectKey(id, n, 1, what), ""); err != nil {
					t.Error(err)
				}
			}
		}}
		if err := write(finalize.New(p, input.NewIndex(d.Blobs, d.Docs), finalize.Options{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d.exists(record.CompletionsFile) || d.exists(record.SummaryFile) || strings.Contains(logged.String(), "lost") {
			t.Errorf("%s: files of the run are written, and the log says %q", name, logged.String())
		}
	}
}
