package pipeline

import (
	"slices"

	"rollout/shared/fault"
)

// DIn and DOut bound the chunks in flight to the mesh and the results that wait for their
// decode. Two is the smallest number with which the stages overlap.
const (
	DIn  = 2
	DOut = 2
)

// Chunk is a chunk that was sent.
type Chunk struct {
	IDs
	Calls int // expected of the generator
}

// Step is what stage 0 does next.
type Step uint8

// The steps.
const (
	Wait   Step = iota // for a result or for work
	Send               // prepare and send a chunk
	Decode             // decode the oldest result
)

// Verdict is what becomes of a result.
type Verdict uint8

// The verdicts.
const (
	Accepted Verdict = iota // waits for its decode
	Stale                   // of an earlier epoch; must not be decoded
)

// Stage0 is the state of stage 0. The zero value has sent nothing. It is not safe for
// concurrent use.
type Stage0 struct {
	epoch, nextCall, nextChunk int64
	inFlight, ready            []Chunk
	sentLast                   bool // no decode and no wait since the last send
	results                    Order
}

// Next returns what to do next. pending says that there is a chunk to send.
func (s *Stage0) Next(pending bool) Step {
	switch {
	// Before the decode: the mesh works during it. With room for a result, as the mesh may
	// read no further before it has sent one. One send for each decode, so that chunks leave
	// at an even pace.
	case pending && len(s.inFlight) < DIn && s.CanReceive() && !(s.sentLast && len(s.ready) > 0):
		return Send
	case len(s.ready) > 0:
		return Decode
	}
	s.sentLast = false
	return Wait
}

// NextChunk returns the ids of the chunk to send. Sent records it; until then the ids are
// not used up.
func (s *Stage0) NextChunk() IDs { return IDs{s.nextCall, s.nextChunk, s.epoch} }

// Sent records that the chunk of NextChunk was sent.
func (s *Stage0) Sent(calls int) error {
	if len(s.inFlight) >= DIn {
		return fault.New(fault.Internal, "%d chunks are in flight: wait for a result", len(s.inFlight))
	}
	s.inFlight = append(s.inFlight, Chunk{s.NextChunk(), calls})
	s.nextCall++
	s.nextChunk++
	s.sentLast = true
	return nil
}

// Control returns the ids of a message without a payload, and counts it.
func (s *Stage0) Control() IDs {
	ids := IDs{s.nextCall, max(0, s.nextChunk-1), s.epoch}
	s.nextCall++
	return ids
}

// CanReceive reports whether a result that arrives has room.
func (s *Stage0) CanReceive() bool { return len(s.ready) < DOut }

// InFlight and Ready return the lengths of the queues.
func (s *Stage0) InFlight() int { return len(s.inFlight) }

// Ready returns how many results wait for their decode.
func (s *Stage0) Ready() int { return len(s.ready) }

// Epoch returns the current epoch.
func (s *Stage0) Epoch() int64 { return s.epoch }

// Receive judges a result. A result of an earlier epoch is Stale. One whose ids do not rise,
// that was not asked for, or whose count of generator calls differs from the expected one is
// Corrupt: the group must end.
func (s *Stage0) Receive(ids IDs, observed int) (Verdict, error) {
	if err := s.results.Accept(Infer, ids); err != nil {
		return Stale, err
	}
	if ids.Epoch != s.epoch {
		if ids.Epoch > s.epoch {
			return Stale, fault.New(fault.Corrupt, "a result of cache_epoch %d: the current one is %d", ids.Epoch, s.epoch)
		}
		return Stale, nil
	}
	if len(s.inFlight) == 0 || s.inFlight[0].IDs != ids {
		return Stale, fault.New(fault.Corrupt, "a result of call_id %d, chunk_index %d: it is not the next in flight",
			ids.Call, ids.Chunk)
	}
	if !s.CanReceive() {
		return Stale, fault.New(fault.Internal, "%d results wait: decode one first", len(s.ready))
	}
	c := s.inFlight[0]
	if observed != c.Calls {
		return Stale, fault.New(fault.Corrupt, "call_id %d, chunk_index %d: observed_generator_calls is %d, expected %d",
			ids.Call, ids.Chunk, observed, c.Calls)
	}
	s.inFlight = slices.Delete(s.inFlight, 0, 1)
	s.ready = append(s.ready, c)
	return Accepted, nil
}

// Decoded records that the oldest result was decoded, and returns its ids.
func (s *Stage0) Decoded() (IDs, bool) {
	if len(s.ready) == 0 {
		return IDs{}, false
	}
	s.sentLast = false
	ids := s.ready[0].IDs
	s.ready = slices.Delete(s.ready, 0, 1)
	return ids, true
}

// Cut begins the next epoch, empties both queues and returns what was in them, the oldest
// first. Results of these chunks are Stale from now on.
func (s *Stage0) Cut() []Chunk {
	flushed := slices.Concat(s.ready, s.inFlight)
	s.ready, s.inFlight = nil, nil
	s.epoch++
	return flushed
}
