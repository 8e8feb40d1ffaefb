package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/isolation"
	"rollout/shared/config"
)

func TestMain(m *testing.M) {
	if isolation.Main(os.Args) {
		return
	}
	os.Exit(m.Run())
}

// folder writes a plugin's files, and returns its folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// manifest returns the manifest of a grader.
func manifest(name, version, mode, entry string) string {
	return "name = \"" + name + "\"\nversion = \"" + version + "\"\nkind = \"grader\"\nmode = \"" + mode + "\"\n" +
		entry + "\n"
}

// builtinFolder is the folder of a plugin with the factory of the same name.
func builtinFolder(t *testing.T, name string) string {
	return folder(t, map[string]string{
		config.PluginFile: manifest(name, "1", "builtin", "[entry.builtin]\nfactory = \""+name+"\"")})
}

// at returns the config of a plugin in a folder.
func at(dir string) config.Plugin {
	p := config.DefaultPlugin()
	p.Path = dir
	return p
}

// function is a builtin plugin.
type function func(ctx context.Context, method string, payload []byte) ([]byte, error)

// Call implements Builtin.
func (f function) Call(ctx context.Context, method string, payload []byte) ([]byte, error) {
	return f(ctx, method, payload)
}

func registryOf(name string, f function) Registry {
	return Registry{name: func() (Builtin, error) { return f, nil }}
}

// log collects events.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// events returns the attributes of the events of a name.
func (l *log) events(name string) (out []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == name {
			out = append(out, m)
		}
	}
	return out
}

// open opens a host with plugins, which ends with the test.
func open(t *testing.T, plugins map[string]config.Plugin, o Options) *Host {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h, err := Open(t.Context(), plugins, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}
