package finalize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/prices"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// summary returns the run's summary. Unless it exists, it first writes the files,
// and then the summary.
func (f *Finalizer) summary(ctx context.Context, m record.Manifest, k kind.Kind,
	write files) (sum record.Summary, whole bool, err error) {
	key := record.OutputKey(m.Run, record.SummaryFile)
	if err := input.ReadJSON(ctx, f.Blobs, key, &sum); !fault.Is(err, fault.NotFound) {
		if err == nil {
			err = f.putSummary(ctx, key, sum)
		}
		if err == nil || fault.Is(err, fault.Conflict) {
			return sum, true, nil
		}
		return sum, false, err
	}
	s, t, whole, err := write(ctx, m, k)
	if err != nil || !whole {
		return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
	}
	if whole, err = f.allFacts(ctx, m, k, s); err != nil || !whole {
		if errors.Is(err, errEnded) {
			err = ErrAlreadyFinalized
		}
		return sum, false, fault.Wrap(err, "write the facts of run %s", m.Run)
	}
	sum = f.summarize(m, s, t)
	sum.Warnings = warnings(k.ConstraintsOf(m.Config), s)
	if sum.Retry, err = f.retried(ctx, m, t.counts); err != nil {
		return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
	}
	if k.Executor == config.ExecutorInfer {
		sum.FinishReasons = t.counts.FinishReasons(t.copies)
	}
	if k.Artifacts != nil {
		appended, err := f.index.AppendedKeys(ctx, m, s.Shards)
		if err != nil {
			return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
		}
		ended := kind.Ended{Blobs: f.Blobs, Manifest: m, Snapshot: t.snapshot, Appended: appended, Looks: s.Looks,
			Deployment: f.prices, Attempts: f.attempts(ctx, s)}
		if err := k.Artifacts(ctx, ended, &sum); err != nil {
			return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
		}
		sum.Phase = string(s.Reason.Phase(t.counts, sum.RefusedLines()))
	}
	err = f.putSummary(ctx, key, sum)
	if fault.Is(err, fault.Conflict) { // another process wrote it first, with the same counts
		err = input.ReadJSON(ctx, f.Blobs, key, &sum)
		return sum, err == nil, err
	}
	if err == nil {
		f.reportEnd(ctx, m, sum)
	}
	return sum, err == nil, err
}

// warnings says what held a run up.
func warnings(c schedule.Constraints, s run.State) (out []string) {
	if limit, most := c.MaxInFlight, s.MostRequests; most > 0 && most < limit {
		out = append(out, fmt.Sprintf("up to %s could be in flight at once, and the run's workers sent at most %s at once: "+
			"start more workers, or lower design.max_concurrency", figures.Of(limit, "trial"), figures.Of(most, "request")))
	}
	return out
}

// attempts yields the shards of a run that were claimed.
func (f *Finalizer) attempts(ctx context.Context, s run.State) iter.Seq2[rollout.Attempt, error] {
	return func(yield func(rollout.Attempt, error) bool) {
		for lo := 0; lo < s.Shards; lo += docsAtOnce {
			docs, err := f.docs(ctx, s.Run, lo, min(lo+docsAtOnce, s.Shards))
			if err != nil {
				yield(rollout.Attempt{}, err)
				return
			}
			for _, d := range docs {
				if d.Attempt > 0 && !yield(rollout.Attempt{Shard: d.Shard, Items: d.Items, Attempt: d.Attempt,
					Worker: d.Worker}, nil) {
					return
				}
			}
		}
	}
}

// putSummary creates the summary. A Conflict says that a summary exists and is durable:
// the process that wrote it may have ended before it made sure of that.
func (f *Finalizer) putSummary(ctx context.Context, key string, sum record.Summary) error {
	body := bytes.NewReader(append(record.Encode(sum), '\n'))
	_, err := f.Blobs.Put(ctx, key, body, blob.PutOptions{CreateOnly: true})
	return err
}

// summarize makes the summary of a run that ended with the state s.
func (f *Finalizer) summarize(m record.Manifest, s run.State, t totals) record.Summary {
	now := f.Clock.Now().UTC()
	sum := record.Summary{
		Schema: record.Schema, Run: m.Run, Name: m.Name, Reason: string(s.Reason), Message: s.Message,
		Phase: string(s.Reason.Phase(t.counts, 0)), Items: uint64(t.counts.OK + t.counts.Failed),
		Completed: uint64(t.counts.OK), Failed: uint64(t.counts.Failed), FailedByClass: t.counts.ByClass,
		UsageUnknown: t.counts.UsageUnknown, Copies: uint64(t.copies), Shards: s.Shards, PromptTokens: t.counts.PromptTokens,
		CompletionTokens: t.counts.CompletionTokens, WastedTokens: t.counts.WastedTokens,
		WastedEstimated: t.counts.WastedEstimated, CachedTokens: t.counts.CachedTokens,
		ReasoningTokens: t.counts.ReasoningTokens,
		Model:           m.ModelURI, Workers: t.workers, CreatedAt: m.CreatedAt, StartedAt: s.StartedAt, EndedAt: now,
		Outputs: record.OutputKey(m.Run, record.CompletionsFile), Errors: record.OutputKey(m.Run, record.ErrorsFile),
	}
	sum.Score, sum.Scores = meanScores(t.scores)
	if sum.FailedByClass == nil {
		sum.FailedByClass = map[string]int{}
	}
	sum.Roles = roleCounts(m, s, t)
	list := prices.Of(f.prices.Cloud.Provider)
	bill := cost.NewBill(m.TokenDollars(f.prices, t.counts, sum.Roles), t.counts.Machines, s.Sent()-s.KeptShards, list)
	sum.CostUSD, sum.Cost = bill.Total(), record.NewCost(bill, t.counts, list)
	sum.Budgets = record.Budgets(m.Config.Limits, t.counts.Tokens(), sum.CostUSD)
	if !s.StartedAt.IsZero() {
		sum.Seconds = now.Sub(s.StartedAt).Seconds()
	}
	return sum
}
