package wasm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/gpuworker/plugin/wire"
	"rollout/shared/fault"
)

func load(t *testing.T, m module) *Module {
	t.Helper()
	p, err := Load(t.Context(), m.assemble(t), 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestModulesReply(t *testing.T) {
	t.Parallel()
	p := load(t, replying(`{"payload":{"scores":[1]}}`))
	for range 3 {
		got, err := p.Call(t.Context(), "grade", []byte(`{"items":[]}`))
		if err != nil || string(got) != `{"scores":[1]}` {
			t.Errorf("%s, %v", got, err)
		}
	}
	_, err := load(t, replying(`{"error":"no such row"}`)).Call(t.Context(), "grade", nil)
	if refused := new(wire.RefusedError); !errors.As(err, &refused) || refused.Reason != "no such row" {
		t.Errorf("%v", err)
	}
}

// The module's free writes over the reply.
func TestRepliesAreCopiedBeforeTheyAreFreed(t *testing.T) {
	t.Parallel()
	m := replying(`{"payload":1}`)
	m.functions[3].body = slices.Concat(i32(dataAt), i32('x'), []byte{opStore8, 0, 0})
	got, err := load(t, m).Call(t.Context(), "grade", nil)
	if err != nil || string(got) != "1" {
		t.Errorf("%s, %v", got, err)
	}
}

// A call that writes into its memory changes no later call.
func TestEachCallHasItsOwnInstance(t *testing.T) {
	t.Parallel()
	const reply = `{"payload":1}`
	destroy := slices.Concat(i32(dataAt+11), i32('2'), []byte{opStore8, 0, 0}, replyAt(dataAt, len(reply)))
	increasing := pluginOf(reply, destroy)
	increasing.functions[3].body = slices.Concat(i32(dataAt), i32('x'), []byte{opStore8, 0, 0})
	p := load(t, increasing)
	for range 2 {
		if got, err := p.Call(t.Context(), "grade", nil); err != nil || string(got) != "2" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

func TestModulesThatAreNoPluginsAreRefused(t *testing.T) {
	t.Parallel()
	of := func(change func(*module)) module {
		m := replying("{}")
		change(&m)
		return m
	}
	trap := []byte{opUnreachable}
	for want, m := range map[string]module{
		"plugin ABI mismatch: got 7, expected 1":            of(func(m *module) { m.functions[0].body = i32(7) }),
		"plugin ABI mismatch: got -1, expected 1":           of(func(m *module) { m.functions[0].body = i32(-1) }),
		"does not export the function rollout_free":         of(func(m *module) { m.functions = m.functions[:3] }),
		"function rollout_alloc takes 0 values and returns": of(func(m *module) { m.functions[1].kind = versionKind }),
		"compile the module":                                of(func(m *module) { m.functions[2].body = []byte{opDrop} }),
		"trapped in rollout_abi_version":                    of(func(m *module) { m.functions[0].body = trap }),
	} {
		p, err := Load(t.Context(), m.assemble(t), 64)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %s", p, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "x.wasm")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), file, 64); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v, want Invalid", err)
	}
	if _, err := Load(t.Context(), file+"x", 64); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v, want NotFound", err)
	}
}

// TestHostileCallsEndWithAnError has the code of a call, and a part of its error. Another plugin
// answers after each.
func TestHostileCallsEndWithAnError(t *testing.T) {
	t.Parallel()
	good := load(t, replying(`{"payload":1}`))
	for name, c := range map[string]struct {
		call []byte
		want string
		kind fault.Kind
	}{
		"a trap": {[]byte{opUnreachable}, "the module trapped in rollout_call", fault.Invalid},
		"endless recursion": {slices.Concat([]byte{opGet, 0, opGet, 1}, []byte{opCall, 2}),
			"the module trapped in rollout_call: \"stack overflow", fault.Invalid},
		// It asks for a page until there is none left, and traps then.
		"memory growth": {slices.Concat([]byte{opLoop, noResult}, i32(1), []byte{opGrow, 0}, i32(-1),
			[]byte{opNe, opBrIf, 0, opEnd, opUnreachable}), "the module trapped in rollout_call", fault.Invalid},
		"a reply outside of its memory": {replyAt(1<<30, 16), "is outside of its memory", fault.Invalid},
		"a reply of 2 GB":               {replyAt(0, 1<<31-1), "has 2147483647 bytes", fault.Invalid},
		"a reply that is not JSON":      {replyAt(0, 16), "is not a JSON object", fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, pluginOf("", c.call)).Call(t.Context(), "grade", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || fault.KindOf(err) != c.kind {
				t.Errorf("%v (%v), want %s", err, fault.KindOf(err), c.want)
			}
			if _, err := good.Call(t.Context(), "grade", nil); err != nil {
				t.Errorf("another plugin is harmed: %v", err)
			}
		})
	}
}

func TestEndlessLoopsEndWithTheirTime(t *testing.T) {
	t.Parallel()
	p := load(t, pluginOf("", []byte{opLoop, noResult, opBr, 0, opEnd, opUnreachable}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Call(ctx, "grade", nil)
	if !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "rollout_call took too long") {
		t.Errorf("%v", err)
	}
}

// An instance gets no more than its limit: here it grows its memory page by page, and replies
// with whether the last page was refused.
func TestMemoryIsLimited(t *testing.T) {
	t.Parallel()
	m := replying(`{"payload":1}`)
	m.pages = 16 // 1 MiB
	if _, err := Load(t.Context(), m.assemble(t), 1); err != nil {
		t.Errorf("a module within its limit: %v", err)
	}
	m.pages = 17
	if _, err := Load(t.Context(), m.assemble(t), 1); !fault.Is(err, fault.Invalid) {
		t.Errorf("a module beyond its limit: %v", err)
	}
}
