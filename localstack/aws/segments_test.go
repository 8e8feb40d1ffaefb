package emulators

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	engine "rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// The joined files have the same bytes, and no multipart upload stays open.
func TestSegmentsOfARunAreJoinedByS3(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	p := host.Ports{Blobs: e.Blobs(t), Docs: memory.NewDocuments(), Queues: memory.NewQueues(clock.System{}),
		Clock: clock.System{},
		Log:   slog.New(slog.DiscardHandler), Source: "test"}
	const shards = 11
	id := inputtest.RunID
	inputtest.Plan(t, p, inputtest.Manifest(1), inputtest.Prompts(0, shards))
	var completions, errs strings.Builder
	for n := range shards {
		rows, failed := strings.Repeat(fmt.Sprintf("%099d\n", n), 21_000), fmt.Sprintf("error %d\n", n)
		completions.WriteString(rows)
		errs.WriteString(failed)
		key := record.ShardObjectKey(id, n, 1, "object")
		hosttest.Put(t, p, key, rows+failed)
		hosttest.Save(t, p, identity.ShardKey(id, n),
			shard.Doc{Schema: 1, Run: id, Shard: n, State: shard.Done, Items: 1, OutputLen: int64(len(rows)),
				Counts: shard.Counts{OK: 1},
				Result: &shard.Ref{Key: key, Length: int64(len(rows) + len(failed)),
					Digest: identity.Content([]byte(rows + failed)).String()}})
	}
	s := engine.New(id)
	s.Phase, s.Reason, s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier = engine.Finalizing,
		engine.ReasonDone, shards, shards, true, shards, shards
	hosttest.Save(t, p, record.CoordinatorKey(id), s)

	f := finalize.New(p, input.NewIndex(p.Blobs, p.Docs),
		finalize.Options{Segments: &finalize.SegmentOptions{StreamBelow: 1, MinBytes: 5 * mib, MaxShards: 100}})
	segments := 0
	for todo := []events.Payload{events.Finalize{Run: string(id)}}; len(todo) > 0; {
		for _, payload := range todo {
			var err error
			switch p := payload.(type) {
			case events.Finalize:
				err = f.Finalize(t.Context(), p)
			case events.FinalizeSegment:
				segments++
				err = f.WriteSegment(t.Context(), p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		ms, err := p.Queues.Receive(t.Context(), host.TaskQueue, 100, time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		todo = nil
		for _, m := range ms {
			_, payload, _ := events.Decode(m.Body)
			todo = append(todo, payload)
			_ = p.Queues.Ack(t.Context(), host.TaskQueue, []string{m.Receipt})
		}
	}
	if segments != 4 {
		t.Errorf("%d segments for %d shards, want 4", segments, shards)
	}
	for name, want := range map[string]string{record.CompletionsFile: completions.String(),
		record.ErrorsFile: errs.String()} {
		r, _, err := p.Blobs.Get(t.Context(), record.OutputKey(id, name), blob.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s has %d bytes, want %d, or other content; %v", name, len(got), len(want), err)
		}
	}
	if left := e.uploads(t); len(left) > 0 {
		t.Errorf("there are unfinished uploads of %q", left)
	}
}
