package coordinate

import (
	"context"
	"maps"
	"slices"

	"rollout/events"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// sendBatch is how many work messages are sent to the queue at once.
const sendBatch = 100

// workSender sends work messages in batches, however few shards each effect names:
// constraints leave few shards that follow each other.
type workSender struct {
	*Coordinator
	*loaded
	entry   record.IndexEntry           // of the shard that was added last
	batches map[string][]events.Payload // by queue
}

// add sends one message for each shard of the effect to the work queue of its role's
// pool, at once or with the next flush.
func (s *workSender) add(ctx context.Context, e run.Effect) error {
	queueOf := host.WorkQueue
	if e.Urgent || e.Generation > 0 { // versions without Urgent have saved effects
		queueOf = host.UrgentQueue
	}
	for n := e.Range.Lo; n < e.Range.Hi; n++ {
		row, err := s.find(ctx, n)
		if err != nil {
			return fault.Wrap(err, "find shard %d of run %s", n, s.state.Run)
		}
		number, err := s.index.RoleOf(ctx, s.manifest, n)
		if err != nil {
			return err
		}
		role, err := s.manifest.Role(number)
		if err != nil {
			return err
		}
		to := queueOf(role.Pool)
		if len(s.batches[to]) == sendBatch {
			if err := s.send(ctx, to); err != nil {
				return err
			}
		}
		if s.batches == nil {
			s.batches = map[string][]events.Payload{}
		}
		s.batches[to] = append(s.batches[to], events.Work{Run: string(s.state.Run), Shard: n, Generation: e.Generation,
			Range: s.entry.Range, Row: row, Pool: role.Pool, Allowance: e.Allowance.Tokens,
			AllowanceMicroUSD: e.Allowance.MicroUSD})
	}
	return nil
}

// find returns the row of shard n in the shard table of the entry, which it sets.
func (s *workSender) find(ctx context.Context, n int) (row int, err error) {
	if row = n - s.entry.FirstShard; row < 0 || row >= s.entry.Shards {
		s.entry, row, err = s.index.FindShard(ctx, s.state.Run, n)
	}
	return row, err
}

// flush sends what add has left. Variants of several models have a queue each, in turn.
func (s *workSender) flush(ctx context.Context) error {
	for _, to := range slices.Sorted(maps.Keys(s.batches)) {
		if err := s.send(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

// send sends the messages for a queue.
func (s *workSender) send(ctx context.Context, to string) error {
	batch := s.batches[to]
	if len(batch) == 0 {
		return nil
	}
	s.batches[to] = batch[:0]
	return s.Send(ctx, to, batch...)
}
