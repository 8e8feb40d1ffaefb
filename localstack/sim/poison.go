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

// poisonPrompt marks prompts that the engine dies of.
const poisonPrompt = "kill the engine"

// poison is what dies of a poisonous prompt.
type poison int

const (
	noPoison    poison = iota // there is no such prompt
	killsWorker               // the worker: its engine lives in the same process
	killsServer               // the inference server that all workers share
)

// drawPoison decides what the world's poison kills, if there is some. In such a
// world nothing else ends a worker: who vanishes again and again with one item
// named is told from poison by nobody.
func (w *World) drawPoison() poison {
	switch w.rand.intN("venom", 6) {
	case 0:
		return killsWorker
	case 1:
		return killsServer
	}
	return noPoison
}

// share is the share of poisonous prompts. One that kills its worker is
// found after seven deaths, most of them half a minute apart: few must do.
func (v poison) share() float64 {
	switch v {
	case killsWorker:
		return 0.005
	case killsServer:
		return 0.02
	}
	return 0
}

// poisonMessage is what the error row of a poisonous item says.
const poisonMessage = "the inference server or its worker crashed each time this item was asked alone " +
	"(find the crash in the server's log, correct the item or the server, then submit the item again)"

// server is the inference server that all workers share.
type server struct {
	mu      sync.Mutex
	starts  int
	down    bool
	busy    int
	alone   *serverCall   // one that has the server alone
	crashed chan struct{} // closed at its death
}

// serverCall is a request on its way through the server.
type serverCall struct {
	*server
	crashed chan struct{}
	died    engine.CrashError // if it does
}

// enter brings a request to the server; Unavailable while it is down. Who
// wants it alone waits for that, for a while.
func (s *server) enter(ctx context.Context, alone bool) (*serverCall, error) {
	if alone {
		alone = s.quiet(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, fault.New(fault.Unavailable, "the server is down")
	}
	if s.crashed == nil {
		s.crashed = make(chan struct{})
	}
	alone = alone && s.busy == 0
	if s.alone != nil { // it sees that somebody came
		s.alone.died.Solo, s.alone = false, nil
	}
	s.busy++
	v := &serverCall{s, s.crashed, engine.CrashError{Server: "server", Start: fmt.Sprint(s.starts), Solo: alone}}
	if alone {
		s.alone = v
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
func (v *serverCall) leave() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy--
	if v.alone == v {
		v.alone = nil
	}
	select {
	case <-v.crashed:
		return fault.WithKind(fault.Unavailable, &v.died, "answer")
	default:
		return nil
	}
}

// crash ends the server, until it is started anew.
func (v *serverCall) crash(w *World) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server.crashed != v.crashed {
		return // it died of another one
	}
	close(v.crashed)
	v.starts, v.down, v.server.crashed = v.starts+1, true, nil
	w.tracef("the server dies, the %d. time", v.starts)
	time.AfterFunc(w.rand.duration("server start", 100*time.Millisecond, 9*time.Second), func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.down = false
	})
}

// isPoison reports whether the engine dies of the request.
func isPoison(r engine.Request) bool { return strings.Contains(string(r.Body), poisonPrompt) }
