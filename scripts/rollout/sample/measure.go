package sample

import (
	"context"
	"encoding/json"
	"time"

	"rollout/scripts/rollout/compare"
	"rollout/shared/config"
	"rollout/shared/core/estimate"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// Estimate is what `submit --sample --json` and `--limit --json` print. An interval is null where nothing is known of
// it: tokens that the server does not report, dollars without prices, a time from fewer than four answers.
type Estimate struct {
	Run        identity.RunID `json:"run_id"` // of the sample
	Name       string         `json:"name"`
	File       string         `json:"file"`
	Random     bool           `json:"random"` // a random sample; false for the first lines
	Seed       uint64         `json:"seed"`
	Items      uint64         `json:"items"`      // lines of the file that its run asks
	Bad        uint64         `json:"bad"`        // lines that become error rows, those with the id of another included
	Duplicates uint64         `json:"duplicates"` // of Bad: lines with the id of an earlier one
	Repeats    uint64         `json:"repeats"`    // lines that get a copy of another one's answer
	Sampled    int            `json:"sampled"`
	Answered   int            `json:"answered"` // of Sampled
	Failed     int            `json:"failed"`   // of Sampled
	// Unanswered is how many of Sampled the end of the run left without an answer. They are left out of the estimates.
	Unanswered int `json:"unanswered"`
	// UsageUnknown is how many answers have no tokens, by the server's silence. They are left out of the estimates.
	UsageUnknown int `json:"usage_unknown"`

	Confidence       float64            `json:"confidence"` // of each interval: 0.95
	PromptTokens     *estimate.Interval `json:"prompt_tokens"`
	CompletionTokens *estimate.Interval `json:"completion_tokens"`
	Tokens           *estimate.Interval `json:"tokens"` // of both
	Dollars          *estimate.Interval `json:"dollars"`
	Seconds          *estimate.Interval `json:"seconds"`
	// SecondsNote says why Seconds is null.
	SecondsNote string `json:"seconds_note,omitempty"`
	// OtherTokens are those of the sample's other roles, such as its judges, which no estimate contains.
	OtherTokens int64  `json:"other_tokens"`
	Submit      string `json:"submit"` // the command that submits the whole file
	// LeftOut says that Submit lacks the values of settings of [request], which may be keys.
	LeftOut bool `json:"submit_left_out,omitempty"`
}

// Measure estimates what the whole file takes from the ended run of its sample. The engine has the prices.
func Measure(ctx context.Context, p host.Ports, s Sample, run compare.Run, engine config.Engine) (Estimate, error) {
	e := Estimate{Run: run.Summary.Run, Name: run.Manifest.Name, File: s.File, Random: !s.Head, Seed: s.Seed,
		Items: s.Whole.Items, Bad: s.Report.Bad, Duplicates: s.Report.Duplicates, Repeats: s.Repeats,
		Sampled: len(s.Sizes), Confidence: 0.95}
	var m measured
	var answeredAt []time.Time
	err := compare.EachRow(ctx, p.Blobs, run, func(r compare.Row) error {
		switch {
		case r.Item >= uint64(len(s.Sizes)):
			return fault.New(fault.Corrupt, "run %s has more items than the sample of %s", e.Run, s.File)
		case r.Class.Unanswered():
			e.Unanswered++
		case r.Class != "":
			e.Failed++
		case r.UsageUnknown:
			e.UsageUnknown++
		}
		if r.Class == "" {
			e.Answered++
			answeredAt = append(answeredAt, r.GeneratedAt)
		}
		if !r.UsageUnknown && !r.Class.Unanswered() {
			m.add(s.Sizes[r.Item], float64(r.PromptTokens), float64(r.CompletionTokens))
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	for _, role := range run.Summary.Roles[min(1, len(run.Summary.Roles)):] {
		if role.Output {
			continue
		}
		e.OtherTokens += role.PromptTokens + role.CompletionTokens
	}
	if e.Answered > e.UsageUnknown {
		m.totals(&e, s, engine)
	}
	e.Seconds, e.SecondsNote, err = seconds(ctx, p, s.Whole.Items, run, answeredAt)
	return e, err
}

// measured are the items of a sample whose tokens are known.
type measured struct{ sizes, prompts, completions []float64 }

func (m *measured) add(size, prompt, completion float64) {
	m.sizes, m.prompts = append(m.sizes, size), append(m.prompts, prompt)
	m.completions = append(m.completions, completion)
}

// totals sets the estimates of tokens and dollars.
func (m measured) totals(e *Estimate, s Sample, engine config.Engine) {
	total := func(value func(prompt, completion float64) float64) *estimate.Interval {
		values := make([]float64, len(m.sizes))
		for i := range values {
			values[i] = value(m.prompts[i], m.completions[i])
		}
		t, ok := estimate.Total(s.Whole, m.sizes, values, s.Seed)
		if !ok {
			return nil
		}
		return &t
	}
	e.PromptTokens = total(func(prompt, _ float64) float64 { return prompt })
	e.CompletionTokens = total(func(_, completion float64) float64 { return completion })
	e.Tokens = total(func(prompt, completion float64) float64 { return prompt + completion })
	if engine.PromptPrice > 0 || engine.CompletionPrice > 0 {
		e.Dollars = total(engine.Dollars)
	}
}

// seconds estimates how long the items take, from the first claim of the sample's shards and the times of its answers.
// It returns nil and the reason where that is not known. A shard that changed hands has the time of its last claim
// alone, and answers from before.
func seconds(
	ctx context.Context, p host.Ports, items uint64, run compare.Run, answeredAt []time.Time,
) (*estimate.Interval, string, error) {
	begin, again, err := firstClaim(ctx, p, run)
	switch {
	case err != nil:
		return nil, "", err
	case again:
		return nil, "the time is not known: a part of the sample was processed twice", nil
	case begin.IsZero():
		return nil, "the time is not known: the sample's shards are deleted", nil
	case len(answeredAt) < 4:
		return nil, "the time is not known: the sample has fewer than 4 answers", nil
	}
	finished := make([]float64, len(answeredAt))
	for i, at := range answeredAt {
		switch {
		case at.IsZero():
			return nil, "the time is not known: the answers of this dialect have no times", nil
		case at.Before(begin.Truncate(time.Second)): // some dialects have whole seconds
			return nil, "the time is not known: answers are older than the first claim of the sample", nil
		}
		finished[i] = max(0, at.Sub(begin).Seconds())
	}
	d, ok := estimate.Duration(items, finished)
	if !ok {
		return nil, "the time is not known: the sample was answered within a second, and its times are whole seconds", nil
	}
	return &d, "", nil
}

// docsAtOnce is how many shard documents are read at once.
const docsAtOnce = 100

// firstClaim returns when a worker first claimed a shard of the run: before, it may have waited for a machine. again is
// true if a shard was claimed more than once: its document has the last claim alone.
func firstClaim(ctx context.Context, p host.Ports, run compare.Run) (first time.Time, again bool, err error) {
	for lo := 0; lo < run.Summary.Shards; lo += docsAtOnce {
		var keys []string
		for n := lo; n < min(lo+docsAtOnce, run.Summary.Shards); n++ {
			keys = append(keys, identity.ShardKey(run.Summary.Run, n))
		}
		docs, err := p.Docs.GetMany(ctx, keys)
		if err != nil {
			return first, again, err
		}
		for _, d := range docs {
			var doc shard.Doc
			if d.Revision == "" {
				continue
			}
			if err := json.Unmarshal(d.Value, &doc); err != nil {
				return first, again, fault.WithKind(fault.Corrupt, err, "decode document %s", d.Key)
			}
			again = again || doc.Attempt > 1
			if at := doc.ClaimedAt; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first, again, nil
}
