package pipeline

import "rollout/shared/fault"

// Action says what a message asks the mesh to do.
type Action uint8

// The actions. Infer alone has a payload; Shutdown and Error end the group.
const (
	Noop     Action = iota // shows that stage 0 is alive
	Infer                  // generate a chunk
	Shutdown               // orderly end
	Error                  // end because of a failure
)

var actionNames = [...]string{"NOOP", "INFER", "SHUTDOWN", "ERROR"}

// String returns the action's name. Example: "INFER".
func (a Action) String() string {
	if a.Valid() {
		return actionNames[a]
	}
	return "unknown action"
}

// Valid reports whether the action is one of the four.
func (a Action) Valid() bool { return a <= Error }

// Terminal reports whether no message follows.
func (a Action) Terminal() bool { return a == Shutdown || a == Error }

// IDs identify a message.
type IDs struct {
	Call  int64 // rises by message, over all actions
	Chunk int64 // rises by chunk; of other actions the last chunk's
	Epoch int64 // rises with each hard cut
}

// Order checks that the ids of messages rise. The zero value expects the first message.
type Order struct {
	last  IDs
	begun bool
	chunk bool // last.Chunk is a chunk's
}

// Accept checks the ids of the next message and remembers them. It returns Corrupt if an id
// is negative, a call or a chunk has come before, or the epoch falls.
func (o *Order) Accept(a Action, ids IDs) error {
	switch {
	case !a.Valid():
		return fault.New(fault.Corrupt, "action %d: only 0 to %d exist", a, Error)
	case ids.Call < 0 || ids.Chunk < 0 || ids.Epoch < 0:
		return fault.New(fault.Corrupt, "call_id %d, chunk_index %d, cache_epoch %d: none may be negative",
			ids.Call, ids.Chunk, ids.Epoch)
	case o.begun && ids.Call <= o.last.Call:
		return fault.New(fault.Corrupt, "call_id %d after %d: it must rise", ids.Call, o.last.Call)
	case o.begun && ids.Epoch < o.last.Epoch:
		return fault.New(fault.Corrupt, "cache_epoch %d after %d: it must not fall", ids.Epoch, o.last.Epoch)
	case a == Infer && o.chunk && ids.Chunk <= o.last.Chunk:
		return fault.New(fault.Corrupt, "chunk_index %d after %d: it must rise", ids.Chunk, o.last.Chunk)
	}
	chunk := o.last.Chunk
	if a == Infer {
		chunk, o.chunk = ids.Chunk, true
	}
	o.last, o.begun = IDs{ids.Call, chunk, ids.Epoch}, true
	return nil
}

// Regime says how the generator's cache is recomputed at the start of a chunk.
type Regime uint8

// The regimes, in the order in which an installation brings them up.
const (
	R1  Regime = iota // no recompute
	R0a               // recompute from context frames that stage 0 sends
	R0                // recompute from the mesh's own latents
)

// RegimeOf returns the regime of a message's two bits. A latent anchor without recompute is
// Invalid: the bit changes what is generated and must not be set by accident.
func RegimeOf(recompute, latentAnchor bool) (Regime, error) {
	switch {
	case latentAnchor && !recompute:
		return R1, fault.New(fault.Invalid, "latent_anchor without do_kv_recompute: set both or neither")
	case latentAnchor:
		return R0, nil
	case recompute:
		return R0a, nil
	}
	return R1, nil
}

// NeedsContext reports whether stage 0 sends context frames.
func (r Regime) NeedsContext() bool { return r == R0a }

// Calls returns how often the generator runs for a chunk of that many denoising steps.
func (r Regime) Calls(steps int) int {
	if r == R1 {
		return steps
	}
	return steps + 1
}
