package powerfailure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/disk"
	"rollout/shared/disk/disktest"
	"rollout/shared/embedded/bucket"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// ended is a run all of whose shards are done, and whose files are to be written.
type ended struct {
	host.Ports
	t      *testing.T
	want   map[string]string // by the files' names
	shards int
}

// on calls do with the run's stores, whose bucket is on the disk.
func (e *ended) on(d disk.Disk, dir string, do func(p host.Ports) error) error {
	b, err := bucket.Open(filepath.Join(dir, "bucket"), bucket.Options{Disk: d})
	if err != nil {
		return err
	}
	p := e.Ports
	p.Blobs = b
	return errors.Join(do(p), b.Close())
}

// prepare makes shards of two items: an answer, and an answer or an error row.
func (e *ended) prepare(p host.Ports) error {
	inputtest.Plan(e.t, p, inputtest.Manifest(2), inputtest.Prompts(0, 2*e.shards))
	for n := range e.shards {
		first, second := fmt.Sprintf("answer %d of shard %d\n", 0, n), fmt.Sprintf("answer %d of shard %d\n", 1, n)
		rows := []result.Row{{Item: 0, Bytes: []byte(first)}, {Item: 1, Bytes: []byte(second)}}
		c := shard.Counts{OK: 2}
		e.want[record.CompletionsFile] += first
		if n%2 == 1 {
			rows[1].Class = fault.Refused
			c = shard.Counts{OK: 1, Failed: 1, ByClass: map[string]int{string(fault.Refused): 1}}
			e.want[record.ErrorsFile] += second
		} else {
			e.want[record.CompletionsFile] += second
		}
		b, out := result.Append(nil, rows)
		ref := shard.Ref{Key: record.ShardObjectKey(inputtest.RunID, n, 1, "result"), Length: int64(len(b)),
			Digest: identity.Content(b).String()}
		hosttest.Put(e.t, p, ref.Key, string(b))
		hosttest.Save(e.t, p, identity.ShardKey(inputtest.RunID, n), shard.Doc{Schema: 1, Run: inputtest.RunID, Shard: n,
			State: shard.Done, Worker: "w1", Items: 2, Result: &ref, OutputLen: out, Counts: c})
	}
	s := run.New(inputtest.RunID)
	s.Phase, s.Shards, s.Items, s.Complete = run.Finalizing, e.shards, uint64(2*e.shards), true
	s.NextShard, s.FrozenFrontier = e.shards, e.shards
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: e.shards})
	hosttest.Save(e.t, p, record.CoordinatorKey(inputtest.RunID), s)
	return nil
}

// check fails if the summary exists without the complete files, or one of them is not
// complete.
func (e *ended) check(p host.Ports, done bool) error {
	summary, err := read(p.Blobs, record.SummaryFile)
	if err != nil {
		return err
	}
	if done && summary == "" {
		return errors.New("the run has ended and has no summary")
	}
	for name, want := range e.want {
		got, err := read(p.Blobs, name)
		if err != nil {
			return err
		}
		if got != want && (got != "" || summary != "") {
			return fmt.Errorf("%s has %d bytes, want %d; the summary has %d", name, len(got), len(want), len(summary))
		}
	}
	return nil
}

// read returns a file of the run, or "" if it does not exist.
func read(b blob.Store, name string) (string, error) {
	r, _, err := b.Get(context.Background(), record.OutputKey(inputtest.RunID, name), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(r)
	return string(content), errors.Join(err, r.Close())
}

func finalizing(t *testing.T) disktest.Operation {
	return disktest.Operation{Name: "finalize", New: func(r *rand.Rand) disktest.Case {
		e := &ended{Ports: hosttest.New(), t: t, shards: 1 + r.IntN(3), want: map[string]string{}}
		return disktest.Case{
			Prepare: func(d disk.Disk, dir string) error { return e.on(d, dir, e.prepare) },
			Do: func(d disk.Disk, dir string) error {
				return e.on(d, dir, func(p host.Ports) error {
					f := finalize.New(p, input.NewIndex(p.Blobs, p.Docs), finalize.Options{})
					return f.Finalize(context.Background(), events.Finalize{Run: string(inputtest.RunID)})
				})
			},
			Check: func(d disk.Disk, dir string, done bool) error {
				return e.on(d, dir, func(p host.Ports) error { return e.check(p, done) })
			},
		}
	}}
}

func TestEndedRunsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	disktest.Try(t, finalizing(t))
}
