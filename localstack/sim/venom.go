package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// kill marks prompts that the engine dies of.
const kill = "kill the engine"

// venom is what dies of a poisonous prompt.
type venom int

const (
	harmless venom = iota // there is no such prompt
	inside                // the worker: its engine lives in the same process
	outside               // the inference server that all workers share
)

// poisoned decides what the world's poison kills, if there is some. In such a
// world nothing else ends a worker: who vanishes again and again with one item
// named is told from poison by nobody.
func (w *World) poisoned() venom {
	switch w.dice.below("venom", 6) {
	case 0:
		return inside
	case 1:
		return outside
	}
	return harmless
}

// frequency is the share of poisonous prompts. One that kills its worker is
// found after seven deaths, most of them half a minute apart: few must do.
func (v venom) frequency() float64 {
	switch v {
	case inside:
		return 0.005
	case outside:
		return 0.02
	}
	return 0
}

// quarantined is what the error row of a poisonous item says.
const quarantined = "the inference server, or its worker, died each time this item was asked alone " +
	"(look into the server's log for what it dies of, then correct the item or the server and submit the item again)"

// server is the inference server that all workers share.
type server struct {
	mu     sync.Mutex
	starts int
	down   bool
	busy   int
	lone   *visit        // one that has the server alone
	over   chan struct{} // closed at its death
}

// visit is a request on its way through the server.
type visit struct {
	*server
	over chan struct{}
	died engine.Died // if it does
}

// enter brings a request to the server; Unavailable while it is down. Who
// wants it alone waits for that, for a while.
func (s *server) enter(ctx context.Context, alone bool) (*visit, error) {
	if alone {
		alone = s.quiet(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, fault.New(fault.Unavailable, "the server is down")
	}
	if s.over == nil {
		s.over = make(chan struct{})
	}
	alone = alone && s.busy == 0
	if s.lone != nil { // it sees that somebody came
		s.lone.died.Alone, s.lone = false, nil
	}
	s.busy++
	v := &visit{s, s.over, engine.Died{Server: "server", Start: fmt.Sprint(s.starts), Alone: alone}}
	if alone {
		s.lone = v
	}
	return v, nil
}

func (s *server) quiet(ctx context.Context) bool {
	for range 100 {
		s.mu.Lock()
		quiet := s.busy == 0
		s.mu.Unlock()
		if quiet || ctx.Err() != nil {
			return quiet
		}
		pause(ctx, 300*time.Millisecond)
	}
	return false
}

// leave ends the request; Unavailable if the server died meanwhile.
func (v *visit) leave() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy--
	if v.lone == v {
		v.lone = nil
	}
	select {
	case <-v.over:
		return fault.As(fault.Unavailable, &v.died, "answer")
	default:
		return nil
	}
}

// die ends the server, until it is started anew.
func (v *visit) die(w *World) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server.over != v.over {
		return // it died of another one
	}
	close(v.over)
	v.starts, v.down, v.server.over = v.starts+1, true, nil
	w.tracef("the server dies, the %d. time", v.starts)
	time.AfterFunc(w.dice.between("server start", 100*time.Millisecond, 9*time.Second), func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.down = false
	})
}

// deadly reports whether the engine dies of the request.
func deadly(r engine.Request) bool { return strings.Contains(string(r.Body), kill) }
