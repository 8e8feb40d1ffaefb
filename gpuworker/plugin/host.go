package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rollout/gpuworker/isolation"
	"rollout/gpuworker/plugin/sidecar"
	"rollout/gpuworker/plugin/wasm"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Options are what a Host works with.
type Options struct {
	Builtins Registry
	Log      *slog.Logger
	Watch    observe.Observer
	// Sandbox returns the sandbox of untrusted sidecars. It is called only if there is one.
	Sandbox func() (*isolation.Sandbox, error)
	// HotReload replaces a plugin as soon as the files of its folder change.
	HotReload bool
}

// instance is a plugin that was started.
type instance interface {
	// Call answers a request with JSON text of wire.MaxBytes at most, until ctx ends.
	Call(ctx context.Context, method string, payload []byte) ([]byte, error)
	// Close ends the plugin. Its calls have ended.
	Close() error
}

// Host has the plugins of a deployment. It is safe for concurrent use. The nil Host has none.
type Host struct {
	o       Options
	plugins map[string]*loaded
	stop    context.CancelFunc // of watching
	watches sync.WaitGroup
}

// loaded is a plugin of the host.
type loaded struct {
	name  string
	cfg   config.Plugin
	slots chan struct{} // as many as calls at once

	mu      sync.Mutex
	current *generation
	warned  time.Time
}

// generation is a plugin with the files that it had at one time.
type generation struct {
	instance
	source Source
	calls  sync.WaitGroup
}

// Open loads and starts the plugins, each of which has its name in its manifest. It returns an
// error if one of them can't be loaded.
func Open(ctx context.Context, plugins map[string]config.Plugin, o Options) (_ *Host, err error) {
	h := &Host{o: o, plugins: map[string]*loaded{}, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		cfg := plugins[name]
		source, err := readAs(name, cfg)
		if err != nil {
			return nil, err
		}
		p := &loaded{name: name, cfg: cfg, slots: make(chan struct{}, cfg.Concurrency)}
		if p.current, err = h.start(ctx, p, source); err != nil {
			return nil, err
		}
		if h.plugins[name] = p; o.HotReload { // the next files have another version and content id
			p.cfg.Version, p.cfg.ContentID = "", ""
		}
		o.Log.InfoContext(ctx, "plugin_loaded", eventAttrs(source)...)
	}
	if o.HotReload {
		err = h.watch()
	}
	return h, err
}

// eventAttrs are the attributes of the events about a plugin.
func eventAttrs(s Source) []any {
	return []any{"plugin", s.Manifest.Name, "version", s.Manifest.Version, "mode", s.Manifest.Mode, "path", s.Dir,
		"content_id", s.ContentID.String()}
}

// readAs reads a plugin and checks that it is the one that the config means.
func readAs(name string, cfg config.Plugin) (Source, error) {
	s, err := Read(cfg.Path)
	if err != nil {
		return s, fault.Wrap(err, "plugins.%s", name)
	}
	m := s.Manifest
	switch id := s.ContentID.String(); {
	case m.Name != name:
		err = fault.New(fault.Invalid, "plugins.%s: the plugin in %s is named %s: use that name", name, s.Dir, m.Name)
	case m.Kind != config.PluginGrader:
		err = fault.New(fault.Invalid, "plugins.%s: its kind is %s, and this version of rollout runs the kind %s alone",
			name, m.Kind, config.PluginGrader)
	case cfg.Version != "" && cfg.Version != m.Version:
		err = fault.New(fault.Invalid, "plugins.%s: its version is %q, and the config wants %q", name, m.Version,
			cfg.Version)
	case cfg.ContentID != "" && cfg.ContentID != id:
		err = fault.New(fault.Invalid, "plugins.%s: its files have the content id %s, and the config wants %s: put the "+
			"right files there, or change content_id", name, id, cfg.ContentID)
	}
	return s, err
}

// start starts a plugin by its mode.
func (h *Host) start(ctx context.Context, p *loaded, s Source) (*generation, error) {
	i, err := h.startInstance(ctx, p, s)
	if err != nil {
		return nil, fault.Wrap(err, "load the plugin %s from %s", p.name, s.Dir)
	}
	return &generation{instance: i, source: s}, nil
}

func (h *Host) startInstance(ctx context.Context, p *loaded, s Source) (instance, error) {
	m := s.Manifest
	switch m.Mode {
	case config.PluginBuiltin:
		return h.o.Builtins.load(m.Entry.Builtin.Factory)
	case config.PluginWASM:
		limited, cancel := context.WithTimeout(ctx, p.cfg.Timeout.Std())
		defer cancel()
		module, err := wasm.Load(limited, filepath.Join(s.Dir, filepath.FromSlash(m.Entry.WASM.Module)), m.Runtime.MemoryMB)
		if err != nil {
			return nil, err
		}
		if id, err := contentOf(s.Dir); err != nil || id != s.ContentID {
			return nil, errors.Join(errChanges, err, module.Close())
		}
		return module, nil
	}
	o := sidecar.Options{Manifest: m, Processes: p.cfg.Concurrency, Timeout: p.cfg.Timeout.Std(), Log: h.o.Log}
	if !p.cfg.Trusted {
		if len(m.NetworkAllowlist) > 0 {
			return nil, &fault.Error{Kind: fault.Denied, Remedy: "remove its network_allowlist, or set trusted = true if you " +
				"trust the plugin", Err: fmt.Errorf("it wants to call %d hosts, and nothing can keep it from others",
				len(m.NetworkAllowlist))}
		}
		var err error
		if o.Sandbox, err = h.o.Sandbox(); err != nil {
			return nil, err
		}
	}
	return startCopy(ctx, s, o)
}

// copied is a sidecar that runs a copy of its files.
type copied struct {
	*sidecar.Pool
	dir string
}

// startCopy starts a sidecar with a copy of its files.
func startCopy(ctx context.Context, s Source, o sidecar.Options) (_ instance, err error) {
	if o.Dir, err = os.MkdirTemp("", "rollout-plugin-files-"); err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "make a folder for its files")
	}
	c := copied{dir: o.Dir}
	if err = s.copyTo(c.dir); err == nil {
		c.Pool, err = sidecar.Start(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	return c, nil
}

// Close implements instance.
func (c copied) Close() error {
	return errors.Join(c.Pool.Close(), fault.WithKind(fault.Internal, os.RemoveAll(c.dir), "remove the copy of its files"))
}

// Source returns a plugin as it is loaded now, and false if the host does not have it.
func (h *Host) Source(name string) (Source, bool) {
	if h == nil || h.plugins[name] == nil {
		return Source{}, false
	}
	p := h.plugins[name]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.source, true
}

// Check returns Denied if the host lacks a plugin that a run is pinned to, or has another version
// or other files. A host that reloads plugins takes them as they are.
func (h *Host) Check(pin record.PluginPin) error {
	s, ok := h.Source(pin.Name)
	if !ok {
		return &fault.Error{Kind: fault.Denied, Err: fault.New(fault.Denied, "this worker has no plugin %s", pin.Name),
			Remedy: "start it with --plugin and the plugin's folder"}
	}
	id := s.ContentID.String()
	switch {
	case h.o.HotReload:
		return nil
	case pin.Version != "" && pin.Version != s.Manifest.Version:
		return otherPlugin("the run began with version %q of the plugin %s, and this worker has version %q", pin.Version,
			pin.Name, s.Manifest.Version)
	case pin.Content != "" && pin.Content != id:
		return otherPlugin("the run began with other files of the plugin %s (content id %s), and this worker has %s",
			pin.Name, pin.Content, id)
	}
	return nil
}

func otherPlugin(format string, args ...any) error {
	return &fault.Error{Kind: fault.Denied, Err: fault.New(fault.Denied, format, args...),
		Remedy: "put the former files back and resume the run, or submit its file again"}
}

// Call has a plugin answer a request, within the time that its config gives it. It waits for a
// free place. A plugin that the host does not have is NotFound. For other errors see the package.
func (h *Host) Call(ctx context.Context, name, method string, payload []byte) (reply []byte, err error) {
	if h == nil || h.plugins[name] == nil {
		return nil, fault.New(fault.NotFound, "this worker has no plugin %s", name)
	}
	p := h.plugins[name]
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, fault.WithKind(fault.Canceled, ctx.Err(), "call the plugin %s", name)
	}
	g := p.acquire()
	defer g.calls.Done()
	limited, cancel := context.WithTimeout(ctx, p.cfg.Timeout.Std())
	defer cancel()
	limited, span := h.o.Watch.Tracer.StartChild(limited, time.Time{}, "plugin_call")
	span.Set(slog.String("plugin", name), slog.String("method", method))
	began := time.Now()
	reply, err = g.Call(limited, method, payload)
	if err != nil && ctx.Err() != nil { // the caller has ended it
		err = fault.WithKind(fault.Canceled, ctx.Err(), "call the plugin %s", name)
	}
	span.End(err)
	if h.o.Watch.Meter != nil {
		h.o.Watch.Meter.RecordPluginCall(name, time.Since(began), err)
	}
	if err != nil && ctx.Err() == nil {
		h.report(ctx, p, g.source, method, err)
	}
	return reply, fault.Wrap(err, "plugin %s", name)
}

// acquire returns the plugin's generation for one call, which must be counted out.
func (p *loaded) acquire() *generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.calls.Add(1)
	return p.current
}

// warnEvery is the time between two warnings about a plugin's calls.
const warnEvery = time.Minute

// report logs the error of a call: as a warning at most once a minute.
func (h *Host) report(ctx context.Context, p *loaded, s Source, method string, err error) {
	p.mu.Lock()
	level := slog.LevelDebug
	if now := time.Now(); now.Sub(p.warned) >= warnEvery {
		p.warned, level = now, slog.LevelWarn
	}
	p.mu.Unlock()
	h.o.Log.Log(ctx, level, "plugin_call_error",
		append(eventAttrs(s), "method", method, observe.KeyError, err)...)
}

// Close ends all plugins once their calls have ended. No call may begin any more.
func (h *Host) Close() error {
	if h == nil {
		return nil
	}
	h.stop()
	h.watches.Wait()
	var all sync.WaitGroup
	errs := make(chan error, len(h.plugins))
	for _, p := range h.plugins {
		all.Go(func() { errs <- p.current.end() })
	}
	all.Wait()
	close(errs)
	var out []error
	for err := range errs {
		out = append(out, err)
	}
	return errors.Join(out...)
}

// end closes a generation once its calls have ended.
func (g *generation) end() error {
	g.calls.Wait()
	return fault.Wrap(g.Close(), "end the plugin %s", g.source.Manifest.Name)
}
