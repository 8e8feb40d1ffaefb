package plugin

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// quiet is how long a plugin's folder must not have changed before it is loaded again: an editor
// writes several files, and several times.
const quiet = 200 * time.Millisecond

// watch reloads plugins when their files change, until the host is closed.
func (h *Host) watch() error {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	for _, p := range h.plugins {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			if err = addFolders(w, p.current.source.Dir); err != nil {
				_ = w.Close()
			}
		}
		if err != nil {
			return fault.WithKind(fault.Unavailable, err, "watch the folder of the plugin %s", p.name)
		}
		h.watches.Go(func() {
			defer w.Close()
			h.reloadOnChange(ctx, p, w)
		})
	}
	return nil
}

// addFolders watches a plugin's folder and those below it.
func addFolders(w *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir():
			return err
		case path != dir && !config.IsPluginFile(e.Name()):
			return fs.SkipDir
		}
		return w.Add(path)
	})
}

// reloadOnChange reloads the plugin after each change.
func (h *Host) reloadOnChange(ctx context.Context, p *loaded, w *fsnotify.Watcher) {
	changed := time.NewTimer(quiet)
	changed.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			if !config.IsPluginFile(filepath.Base(e.Name)) || e.Op == fsnotify.Chmod {
				continue
			}
			changed.Reset(quiet)
		case <-w.Errors: // changes were lost: read the folder again
			changed.Reset(quiet)
		case <-changed.C:
			_ = addFolders(w, p.source().Dir) // a new folder; the manifest may be gone for a moment
			h.reload(ctx, p, "its files have changed")
		}
	}
}

func (p *loaded) source() Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.source
}

// reload starts the plugin with the files that it has now, and ends the old one when its calls
// have ended. If it can't be started, the old one stays.
func (h *Host) reload(ctx context.Context, p *loaded, reason string) {
	old := p.source()
	source, err := readAs(p.name, p.cfg)
	switch {
	case err == nil && source.ContentID == old.ContentID:
		return
	case err == nil && (source.Manifest.Mode == config.PluginBuiltin || old.Manifest.Mode == config.PluginBuiltin):
		err = fault.New(fault.Invalid, "reload of a compiled-in plugin is not supported: start the worker again")
	}
	var next *generation
	if err == nil {
		next, err = h.start(ctx, p, source)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.o.Log.WarnContext(ctx, "a changed plugin is not loaded, and the old one stays",
				append(eventAttrs(old), observe.KeyReason, reason, observe.KeyError, err)...)
		}
		return
	}
	p.mu.Lock()
	before := p.current
	p.current = next
	p.mu.Unlock()
	h.o.Log.InfoContext(ctx, "plugin_reloaded", append(eventAttrs(source), observe.KeyReason, reason)...)
	h.watches.Go(func() {
		if err := before.end(); err != nil {
			h.o.Log.WarnContext(ctx, "the old plugin did not end well", append(eventAttrs(old), observe.KeyError, err)...)
		}
	})
}
