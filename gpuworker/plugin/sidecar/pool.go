package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rollout/gpuworker/isolation"
	"rollout/gpuworker/plugin/wire"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Requests that the worker makes by itself.
const (
	methodInit      = "init"
	methodPreflight = "preflight"
	methodShutdown  = "shutdown"
)

// Waits.
const (
	startTime    = time.Minute // from the start of a program to its connection
	grace        = 2 * time.Second
	firstBackoff = 100 * time.Millisecond
	maxDoublings = 7 // of firstBackoff
)

// Options say what a pool runs.
type Options struct {
	Manifest config.PluginManifest
	Dir      string // of the plugin's files, absolute
	// Sandbox is where the plugin runs. Nil runs it as the worker's user: it is trusted.
	Sandbox   *isolation.Sandbox
	Processes int           // at most; each answers one call at a time
	Timeout   time.Duration // of "init" and "preflight"
	Log       *slog.Logger
}

// Pool is the processes of a plugin. It is safe for concurrent use.
type Pool struct {
	free chan *lane
}

// lane is a place for one process.
type lane struct {
	o         Options
	process   *process // nil if there is none
	crashes   int      // in a row
	nextStart time.Time
}

// Start starts the first process of a plugin; others start with the calls that need them. It
// returns an error if the plugin does not start, or does not know the protocol.
func Start(ctx context.Context, o Options) (*Pool, error) {
	p := &Pool{free: make(chan *lane, o.Processes)}
	first := &lane{o: o}
	if err := first.start(ctx); err != nil {
		return nil, err
	}
	p.free <- first
	for range o.Processes - 1 {
		p.free <- &lane{o: o}
	}
	return p, nil
}

// Call has a process answer a request, until ctx ends. The plugin's own error is Invalid. A
// crash, a reply that is malformed, and a call that takes too long are Unavailable.
func (p *Pool) Call(ctx context.Context, method string, payload []byte) ([]byte, error) {
	switch method {
	case methodInit, methodPreflight, methodShutdown:
		return nil, fault.New(fault.Invalid, "the method %s is the worker's own", method)
	}
	request, err := wire.AppendRequest(nil, method, payload)
	if err != nil {
		return nil, err
	}
	select {
	case l := <-p.free:
		defer func() { p.free <- l }()
		return l.call(ctx, request)
	case <-ctx.Done():
		return nil, fault.WithKind(fault.Unavailable, ctx.Err(), "wait for a process of the plugin")
	}
}

// Close ends all processes, and returns when none is left. Calls must have ended.
func (p *Pool) Close() error {
	var all sync.WaitGroup
	for range cap(p.free) {
		l := <-p.free
		if l.process != nil {
			all.Go(l.process.shutdown)
		}
	}
	all.Wait()
	return nil
}

// call has the lane's process answer, which it starts if there is none.
func (l *lane) call(ctx context.Context, request []byte) ([]byte, error) {
	if l.process != nil && l.process.hasEnded() {
		l.process.kill()
		l.lose()
	}
	if l.process == nil {
		if err := l.restart(ctx); err != nil {
			return nil, err
		}
	}
	reply, err := l.process.exchange(ctx, request)
	if err != nil {
		err = l.process.failed(ctx, err)
		canceled := errors.Is(ctx.Err(), context.Canceled)
		l.lose()
		if canceled { // says nothing against the plugin
			l.crashes, l.nextStart = 0, time.Time{}
		}
		return nil, err
	}
	l.crashes = 0
	return wire.DecodeReply(reply)
}

// lose forgets the process, which has ended, and plans when the next one may start.
func (l *lane) lose() {
	l.process = nil
	l.nextStart = time.Now().Add(firstBackoff << min(l.crashes, maxDoublings))
	l.crashes++
}

// restart starts a process when its time has come.
func (l *lane) restart(ctx context.Context) error {
	wait := time.NewTimer(time.Until(l.nextStart))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return fault.WithKind(fault.Unavailable, ctx.Err(), "the plugin's process has crashed, and starts again after a wait")
	}
	if err := l.start(ctx); err != nil {
		l.lose()
		return fault.WithKind(fault.Unavailable, err, "start the plugin's process again")
	}
	return nil
}

// start starts a process, and lets it initialize itself.
func (l *lane) start(ctx context.Context) error {
	p, err := launch(ctx, l.o)
	if err != nil {
		return err
	}
	if err := l.initialize(ctx, p); err != nil {
		return p.failed(ctx, err)
	}
	l.process = p
	return nil
}

func (l *lane) initialize(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	m := l.o.Manifest
	hello, err := json.Marshal(wire.Hello{ABI: config.PluginABI, Name: m.Name, Version: m.Version, Kind: m.Kind})
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode the request init")
	}
	text, err := p.ask(ctx, methodInit, hello)
	if err != nil {
		return err
	}
	var ready wire.Ready
	if err := json.Unmarshal(text, &ready); err != nil {
		return fault.WithKind(fault.Invalid, err, "the reply to init is %.100q", text)
	}
	if err := wire.CheckABI(int64(ready.ABI)); err != nil {
		return err
	}
	if ready.Preflight {
		_, err = p.ask(ctx, methodPreflight, nil)
	}
	return err
}

// report logs what a process that has ended had written.
func (o Options) report(stream string, kept []byte, all int64) {
	if all == 0 {
		return
	}
	o.Log.Info("plugin_output", "plugin", o.Manifest.Name, "stream", stream, "bytes", all,
		"text", fmt.Sprintf("%q", kept), observe.KeyReason, "the plugin's process has ended")
}
