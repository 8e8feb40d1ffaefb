package worker

import (
	"context"

	"rollout/shared/core/cost"
	"rollout/shared/core/ratelimit"
)

// Cost is what a request will take, as far as that is known before.
type Cost struct {
	PromptBytes int   // of the prompt
	MaxTokens   int64 // of the answer; 0 if it has no bound
}

// Slot is the permission to have one request in flight.
type Slot struct {
	s       *Shard
	request int
}

// AcquireSlot waits until a request of that cost may begin: within the shard's
// allowance, under the pool's limit, and within the number of requests at once. It
// returns false when the shard is stopping or ctx ends. The caller must release the
// slot, and makes the request with the permit.
func (s *Shard) AcquireSlot(ctx context.Context, c Cost) (Slot, Permit, bool) {
	permit, ok := s.acquireAll(ctx, c)
	if !ok {
		return Slot{}, Permit{}, false
	}
	if !s.awaitSuspectsWritten(ctx) {
		s.slots.release(false)
		permit.Cancel()
		return Slot{}, Permit{}, false
	}
	now := s.now()
	slot := Slot{s, s.inFlight.begin(now)}
	s.machine.begin(now)
	if s.Stopped() { // stop may have looked at the requests in flight before this one
		slot.Release()
		permit.Cancel()
		return Slot{}, Permit{}, false
	}
	return slot, permit, true
}

// acquireAll takes a permit and a slot. It waits for a slot without a permit, which it
// would keep from the holder of all slots, who may wait for permits. It waits for a
// permit without a slot.
func (s *Shard) acquireAll(ctx context.Context, c Cost) (permit Permit, ok bool) {
	for !s.Stopped() && ctx.Err() == nil {
		if permit, ok = s.AcquirePermit(ctx, c); !ok {
			break
		}
		if s.slots.tryAcquire(s.claimant()) {
			return permit, true
		}
		permit.Cancel()
		of := s.claimant()
		if !s.slots.acquire(ctx, s.stopping, of, false) {
			break
		}
		if permit, ok = s.tryPermit(c); ok {
			return permit, true
		}
		s.slots.cancel(of)
	}
	return Permit{}, false
}

// claimant returns the shard's run with its weight now.
func (s *Shard) claimant() claimant {
	if s.part.Deadline.IsZero() {
		return claimant{run: s.part.Run, weight: s.part.Weight}
	}
	return claimant{run: s.part.Run, weight: s.part.WeightAt(s.now())}
}

// AcquirePermit waits until one more request of that cost may begin in a slot that the
// caller has. It returns false when the shard is stopping or ctx ends.
func (s *Shard) AcquirePermit(ctx context.Context, c Cost) (Permit, bool) {
	reserved, ok := s.allowance.acquire(ctx, s.stopping, c)
	if !ok {
		return Permit{}, false
	}
	limit, ok := s.limiter.acquire(ctx, s.stopping, s.claimant(), c)
	return s.permit(limit, c, reserved, ok)
}

// tryPermit returns a permit if the request may begin at once.
func (s *Shard) tryPermit(c Cost) (Permit, bool) {
	reserved, _, ok := s.allowance.tryAcquire(c)
	if !ok {
		return Permit{}, false
	}
	limit, ok := s.limiter.tryAcquire(s.claimant(), c)
	return s.permit(limit, c, reserved, ok)
}

// permit joins what the allowance reserves with the permit of the pool's limit. If ok is
// false, the limit gave no permit, and the reservation ends.
func (s *Shard) permit(limit limitPermit, c Cost, reserved cost.Spend, ok bool) (Permit, bool) {
	if !ok {
		s.allowance.end(reserved, 0)
		return Permit{}, false
	}
	return Permit{limit, s.allowance, &s.money, c, reserved}, true
}

// IsLimited reports whether the pool has a limit now or the shard an allowance, so that
// costs count.
func (s *Shard) IsLimited() bool { return s.allowance != nil || s.limiter.isLimited() }

// Release gives the slot back after its request has ended. Call it once.
func (p Slot) Release() {
	p.s.inFlight.end(p.request)
	p.s.machine.end()
	p.s.slots.release(false)
}

// Permit is the permission to begin one request. Call Settle, Fail or Cancel once, when
// the request has ended.
type Permit struct {
	limit     limitPermit
	allowance *allowance
	money     *money
	asked     Cost
	reserved  cost.Spend // of the allowance
}

// Settle says which tokens an answered request took. known is false if they are
// estimates: under the pool's limit, the request counts as it was estimated before.
func (p Permit) Settle(prompt, completion int64, known bool) {
	p.money.ended(prompt, completion)
	if p.allowance != nil {
		p.allowance.estimate.learn(p.asked, prompt, completion)
		p.allowance.end(p.reserved, prompt+completion)
	}
	if known {
		p.limit.Settle(prompt, completion)
	}
}

// Report takes in what the answer, or the refusal, says of the server's limits. Call it
// before the method that ends the permit.
func (p Permit) Report(r ratelimit.Report) { p.limit.Report(r) }

// Fail says which tokens a request took that has no answer. Under the pool's limit, it
// counts as it was estimated before.
func (p Permit) Fail(prompt, completion int64) {
	p.money.ended(prompt, completion)
	p.allowance.end(p.reserved, prompt+completion)
}

// Cancel takes the permit back: its request does not begin.
func (p Permit) Cancel() {
	p.allowance.end(p.reserved, 0)
	p.limit.Cancel()
}
