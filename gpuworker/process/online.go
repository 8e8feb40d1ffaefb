package process

import (
	"context"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/online"
	"rollout/gpuworker/serve"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/observe"
	"rollout/shared/onlinewire"
)

// onlineDoor is where a process takes online requests. The zero value takes none.
type onlineDoor struct {
	server *online.Server
	socket string
}

// setWorker says which worker answers now; nil is none.
func (d onlineDoor) setWorker(w *worker.Worker) {
	if d.server != nil {
		d.server.SetWorker(w)
	}
}

// settings returns a worker's part in online requests.
func (d onlineDoor) settings(c config.Online) worker.Online {
	if d.server == nil {
		return worker.Online{}
	}
	return worker.Online{Share: c.Share, Queue: c.Queue, Socket: d.socket}
}

// serveOnline takes online requests at a new socket until end is called. Without a folder
// for sockets, or if the workload or the config has none, it takes none. Batch work goes on
// if the socket can't be made; then the log says why.
func (o Options) serveOnline(ctx context.Context, load workload) (door onlineDoor, end func()) {
	c := o.Deployment.Online
	target := load.online()
	if o.Sockets == "" || c.Share <= 0 || target == nil {
		return onlineDoor{}, func() {}
	}
	onlinewire.RemoveStale(ctx, o.Sockets)
	path, err := filepath.Abs(filepath.Join(o.Sockets, ulid.Make().String()+".sock"))
	if err != nil {
		o.Ports.Log.WarnContext(ctx, "no online requests", observe.KeyError, err)
		return onlineDoor{}, func() {}
	}
	l, err := onlinewire.Listen(ctx, path)
	if err != nil {
		o.Ports.Log.WarnContext(ctx, "no online requests", observe.KeyError, err)
		return onlineDoor{}, func() {}
	}
	s := online.New(target, c.MaxWait.Std())
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Serve(ctx, l); err != nil && ctx.Err() == nil {
			o.Ports.Log.WarnContext(ctx, "online requests end", observe.KeyError, err)
		}
		_ = l.Close() // removes the socket; the server may have closed the listener
	}()
	return onlineDoor{s, path}, func() { cancel(); <-ended }
}

// online returns what answers online requests with the workload's engine.
func (a inference) online() online.Target {
	w := a.o.Deployment.Worker
	switch e := a.engine.(type) {
	case online.Passer:
		whole := w.RequestTimeout.Std()
		if whole <= 0 {
			whole = onlinewire.WholeTime
		}
		return online.Pass{Servers: e, Silence: w.ProgressTimeout.Std(), Whole: whole,
			Avoid: func() []string { return slices.Collect(maps.Keys(a.aside())) }}
	case *tiny.Engine:
		return online.Handler{Handler: serve.New(serve.Config{Engine: e, Clock: a.o.Ports.Clock, Log: a.o.Ports.Log,
			Rand: rand.Uint64})}
	}
	return online.Whole{Engine: a.engine}
}
