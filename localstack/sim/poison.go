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

// poisonPrompt marks prompts that crash the engine.
const poisonPrompt = "kill the engine"

// poison says what a poisonous prompt crashes.
type poison int

const (
	noPoison    poison = iota // the files have no such prompt
	killsWorker               // the worker, whose engine is in the same process
	killsServer               // the inference server of all workers
)

// drawPoison draws the world's poison. In a world with poison no other fault ends
// a worker, since a worker that is killed again and again with one item named
// looks the same as a poisonous item.
func (w *world) drawPoison() poison {
	switch w.rand.intN("venom", 6) {
	case 0:
		return killsWorker
	case 1:
		return killsServer
	}
	return noPoison
}

// share is the share of poisonous prompts. A prompt that crashes its worker is
// quarantined after seven crashes, most of them half a minute apart, so there
// are few.
func (v poison) share() float64 {
	switch v {
	case killsWorker:
		return 0.005
	case killsServer:
		return 0.02
	}
	return 0
}

// poisonMessage is the error of a poisonous item.
const poisonMessage = "the inference server or its worker crashed each time this item was asked alone " +
	"(find the crash in the server's log, correct the item or the server, then submit the item again)"

// server is the inference server that all workers share.
type server struct {
	mu      sync.Mutex
	starts  int
	down    bool
	busy    int
	alone   *serverCall   // the request that has the server alone
	crashed chan struct{} // closed when it crashes
}

// serverCall is a request in the server.
type serverCall struct {
	*server
	crashed chan struct{}
	died    engine.CrashError // its error if the server crashes
}

// enter starts a request; Unavailable while the server is down. With alone it
// first waits a bounded time until the server is idle.
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
	if s.alone != nil { // that request is alone no more
		s.alone.died.Solo, s.alone = false, nil
	}
	s.busy++
	v := &serverCall{s, s.crashed, engine.CrashError{Server: "server", Start: fmt.Sprint(s.starts), Solo: alone}}
	if alone {
		s.alone = v
	}
	return v, nil
}

// quiet waits until the server is idle and reports whether it is.
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

// leave ends the request; Unavailable if the server crashed meanwhile.
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

// crash ends the server, which starts again after a drawn time.
func (v *serverCall) crash(w *world) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server.crashed != v.crashed {
		return // another request has crashed it
	}
	close(v.crashed)
	v.starts, v.down, v.server.crashed = v.starts+1, true, nil
	w.tracef("the server crashes, crash %d", v.starts)
	time.AfterFunc(w.rand.duration("server start", 100*time.Millisecond, 9*time.Second), func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.down = false
	})
}

// isPoison reports whether the request crashes the engine.
func isPoison(r engine.Request) bool { return strings.Contains(string(r.Body), poisonPrompt) }
