package infer

import (
	"cmp"
	"sync"

	"rollout/gpuworker/worker"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// answers gathers the answers to one item's requests and makes its row of them.
type answers struct {
	*execution
	index int // of the item in the shard
	item  *dialect.Item
	id    identity.ContentID
	place dialect.Place
	cost  worker.Cost // of each request; zero in a pool without a limit

	mu   sync.Mutex
	got  []dialect.Answer
	one  [1]dialect.Answer // memory of got for the usual single answer
	left int               // requests that have not ended
	err  error
}

// abandon ends the requests from the k-th on, which are not made.
func (a *answers) abandon(k int) {
	for ; k < len(a.got); k++ {
		a.add(nil, k, dialect.Answer{}, fault.New(fault.Canceled, "item %d: the request is not made", a.place.Item))
	}
}

// add adds the outcome of the k-th request. After the last one it makes the
// item's row, with the memory of sc. If a request was cancelled, the item gets
// no row and will be answered from the start. Sc may be nil with a Canceled err.
func (a *answers) add(sc *scratch, k int, answer dialect.Answer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got[k] = answer
	a.left--
	if err != nil && (a.err == nil || fault.Is(err, fault.Canceled)) {
		a.err = err
	}
	if fault.Is(a.err, fault.Canceled) {
		a.shard.AddWastedTokens(a.discard(), false)
		return
	}
	if a.left > 0 {
		return
	}
	if a.err != nil {
		a.fail(a.index, a.item, a.place, a.err, a.discard())
		return
	}
	r := dialect.Result{ID: a.item.RowID(a.id), Answers: a.got, GeneratedAt: a.cfg.Clock.Now().UTC()}
	if a.grades.graders == nil {
		sc.row = a.put(sc.row[:0], r)
		return
	}
	a.grade(r)
}

// put makes the item's output row, in the memory of row, which it returns.
func (a *answers) put(row []byte, r dialect.Result) []byte {
	row = dialect.AppendOutput(row, a.item, a.model, r)
	a.shard.Put(a.index, row, "", a.tokens())
	a.notify(a.place.Item, r.ID, "")
	return row
}

// tokens returns the tokens of an answered item, and how it ended. The prompt
// counts once, as in one request with n answers. Of several finish reasons the
// first that is not stop counts.
func (a *answers) tokens() worker.Tokens {
	t := worker.Tokens{Prompt: a.got[0].Usage.PromptTokens, Cached: a.got[0].Usage.CachedTokens,
		Finish: shard.FinishStop}
	for _, g := range a.got {
		t.Completion += g.Usage.CompletionTokens
		t.Reasoning += g.Usage.ReasoningTokens
		t.Unknown = t.Unknown || g.Usage.Unknown
		if t.Finish == shard.FinishStop {
			t.Finish = cmp.Or(g.FinishReason, shard.FinishNone)
		}
	}
	return t
}

// discard drops the answers so far and returns how many tokens they took.
func (a *answers) discard() int64 {
	n := int64(0)
	for k, g := range a.got {
		n += g.Usage.PromptTokens + g.Usage.CompletionTokens
		a.got[k] = dialect.Answer{}
	}
	return n
}

// bodyWithOtherSeed returns the request body of a decode with another seed, for
// a model that answered white space: with the same seed it would do so again.
// The seed is derived like that of a further decode, with a number beyond those
// that an item may have.
func (a *answers) bodyWithOtherSeed(decode, failures int) []byte {
	return a.request(&scratch{}, a, decode+failures<<16, false).Body
}
