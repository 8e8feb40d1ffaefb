package documenttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// Sizes of a history: large enough for conflicts, small enough for a quick check.
const (
	historyClients = 8
	historyCalls   = 25
	historyKeys    = 3
)

// call is one call of a history; answer is its result.
type call struct {
	op    string // "get", "create", "replace" or "delete"
	key   string
	value string
	rev   document.Revision
}

type answer struct {
	value string
	rev   document.Revision
	kind  string // "" or the error's kind
}

// content is the state of one document in the model.
type content struct {
	value string
	rev   document.Revision // "" if the document is absent
}

func testHistory(t *testing.T, f *fixture) {
	var now atomic.Int64
	histories := make([][]porcupine.Operation, historyClients)
	var done sync.WaitGroup
	for i := range historyClients {
		s := f.Store
		if i%2 == 1 {
			s = f.other
		}
		c := &client{t: t, store: s, id: i, rng: rand.New(rand.NewPCG(uint64(i), 7)), seen: map[string]document.Revision{}}
		done.Go(func() {
			for n := range historyCalls {
				in := c.choose(n)
				began := now.Add(1)
				out := c.make(in)
				histories[i] = append(histories[i], porcupine.Operation{
					ClientId: i, Input: in, Call: began, Output: out, Return: now.Add(1),
				})
			}
		})
	}
	done.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	if !porcupine.CheckOperations(model(), all) {
		for _, op := range all {
			t.Logf("client %d [%d, %d] %+v → %+v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
		t.Error("the history is not linearizable")
	}
}

// client makes calls with revisions that it read, so that many of them succeed.
type client struct {
	t     *testing.T
	store document.Store
	id    int
	rng   *rand.Rand
	seen  map[string]document.Revision
}

func (c *client) choose(n int) call {
	key := fmt.Sprintf("doc/%d", c.rng.IntN(historyKeys))
	in := call{op: "get", key: key, value: fmt.Sprintf("%d.%d", c.id, n)}
	switch draw := c.rng.IntN(10); {
	case draw < 3:
		in.value = ""
	case c.seen[key] == "":
		in.op = "create"
	case draw < 8:
		in.op, in.rev = "replace", c.seen[key]
	default:
		in.op, in.rev, in.value = "delete", c.seen[key], ""
	}
	return in
}

func (c *client) make(in call) (out answer) {
	ctx := c.t.Context()
	var err error
	switch in.op {
	case "get":
		var d document.Doc
		d, err = c.store.Get(ctx, in.key)
		out.value, out.rev = string(d.Value), d.Revision
	case "create":
		out.rev, err = c.store.Create(ctx, in.key, []byte(in.value))
	case "replace":
		out.rev, err = c.store.Replace(ctx, in.key, []byte(in.value), in.rev)
	case "delete":
		err = c.store.Delete(ctx, in.key, in.rev)
	}
	c.seen[in.key] = out.rev
	if err != nil {
		out.kind = fault.KindOf(err).String()
	}
	return out
}

func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(call).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return content{} },
		Step: func(state, input, output any) (bool, any) {
			return step(state.(content), input.(call), output.(answer))
		},
	}
}

// step reports whether the answer to the call is valid for a document with the
// content c, and returns the content after the call.
func step(c content, in call, out answer) (bool, content) {
	exists, current := c.rev != "", c.rev != "" && c.rev == in.rev
	switch {
	case in.op == "get" && !exists, in.op == "delete" && !exists:
		return out.kind == "not_found", c
	case in.op == "get":
		return out == answer{value: c.value, rev: c.rev}, c
	case in.op == "create" && exists, in.op == "replace" && !current, in.op == "delete" && !current:
		return out.kind == "conflict", c
	case in.op == "delete":
		return out.kind == "", content{}
	}
	return out.kind == "" && out.rev != "" && out.rev != c.rev, content{in.value, out.rev}
}
