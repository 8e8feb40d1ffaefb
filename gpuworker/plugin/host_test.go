package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/isolation"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
)

func TestBuiltinPluginsAreCalled(t *testing.T) {
	t.Parallel()
	var events log
	m := meter.New()
	h := open(t, map[string]config.Plugin{"echo": at(builtinFolder(t, "echo"))}, Options{Log: events.logger(),
		Watch: observe.Observer{Meter: m},
		Builtins: registryOf("echo", func(_ context.Context, method string, payload []byte) ([]byte, error) {
			switch method {
			case "panic":
				panic("no")
			case "refuse":
				return nil, errors.New("not this row")
			}
			return append([]byte(method+" "), payload...), nil
		})})
	if got, err := h.Call(t.Context(), "echo", "grade", []byte("{}")); string(got) != "grade {}" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	for method, want := range map[string]string{"panic": `plugin echo: the plugin panicked: "no"`,
		"refuse": "not this row"} {
		if _, err := h.Call(t.Context(), "echo", method, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := h.Call(t.Context(), "other", "grade", nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	loaded, failed := events.events("plugin_loaded"), events.events("plugin_call_error")
	if len(loaded) != 1 || loaded[0]["plugin"] != "echo" || loaded[0]["mode"] != "builtin" || loaded[0]["version"] != "1" {
		t.Errorf("%v", loaded)
	}
	if len(failed) != 1 || failed[0]["plugin"] != "echo" || failed[0]["error"] == nil {
		t.Errorf("%v, want one event a minute", failed)
	}
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0.0
	for _, f := range families {
		if f.GetName() == "rollout_plugin_calls_total" {
			for _, one := range f.GetMetric() {
				calls += one.GetCounter().GetValue()
			}
		}
	}
	if calls != 3 {
		t.Errorf("the metrics have %v calls, want 3", calls)
	}
}

func TestCallsOfAPluginAreLimited(t *testing.T) {
	t.Parallel()
	dir := builtinFolder(t, "slow")
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		cfg := at(dir)
		cfg.Timeout = config.Duration(time.Second)
		h := open(t, map[string]config.Plugin{"slow": cfg}, Options{
			Builtins: registryOf("slow", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				<-ctx.Done()
				return nil, fault.WithKind(fault.Unavailable, ctx.Err(), "slow")
			})})
		ended := make(chan error)
		began := time.Now()
		for range 4 {
			go func() {
				_, err := h.Call(t.Context(), "slow", "grade", nil)
				ended <- err
			}()
		}
		for range 4 {
			if err := <-ended; !fault.Is(err, fault.Unavailable) {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); took != 2*time.Second || most.Load() != 2 {
			t.Errorf("%d calls at once, and 4 took %s", most.Load(), took)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Call(canceled, "slow", "grade", nil); !fault.Is(err, fault.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestPluginsThatCanNotBeLoadedSayWhy(t *testing.T) {
	t.Parallel()
	sidecar := "[entry.sidecar]\nargs = [\"python3\", \"x.py\"]"
	linked := folder(t, map[string]string{config.PluginFile: manifest("a", "1", "sidecar", sidecar)})
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, "x.py")); err != nil {
		t.Fatal(err)
	}
	pinned := at(builtinFolder(t, "a"))
	pinned.ContentID = strings.Repeat("0", 64)
	older := at(builtinFolder(t, "a"))
	older.Version = "0"
	of := func(text string) config.Plugin { return at(folder(t, map[string]string{config.PluginFile: text})) }
	plain := manifest("a", "1", "sidecar", sidecar)
	module := manifest("a", "1", "wasm", "[entry.wasm]\nmodule = \"no.wasm\"")
	for want, cfg := range map[string]config.Plugin{
		"name a folder with a rollout-plugin.toml": at(t.TempDir()),
		"the plugin in": at(builtinFolder(t, "b")),
		"this program has no builtin plugin \"a\"":               at(builtinFolder(t, "a")),
		"the config wants " + strings.Repeat("0", 64):            pinned,
		"its version is \"1\", and the config wants \"0\"":       older,
		"x.py is neither a file nor a folder":                    at(linked),
		"rollout-plugin.toml:":                                   of("mode = 1\n"),
		"runs the kind grader alone":                             of(strings.Replace(plain, "grader", "row-finisher", 1)),
		"it wants to call 1 hosts, and nothing can keep it from": of("network_allowlist = [\"x.org\"]\n" + plain),
		"no sandbox here":                                        of(plain),
		"read the module":                                        of(module),
	} {
		h, err := Open(t.Context(), map[string]config.Plugin{"a": cfg}, Options{
			Sandbox: func() (*isolation.Sandbox, error) { return nil, errors.New("no sandbox here") }})
		if err == nil || !strings.Contains(err.Error()+fault.RemedyOf(err), want) {
			t.Errorf("%v, %v, want %s", h, err, want)
		}
	}
}

func TestContentIDsAreOfOwnFilesAlone(t *testing.T) {
	t.Parallel()
	files := map[string]string{config.PluginFile: manifest("a", "1", "sidecar", "[entry.sidecar]\nargs = [\"x\"]"),
		"x": "1", "lib/y": "2"}
	read := func() Source {
		s, err := Read(folder(t, files))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := read()
	files["__pycache__/x.pyc"], files[".git/HEAD"], files[".x.swp"] = "3", "4", "5"
	if again := read(); again.ContentID != first.ContentID {
		t.Error("files that are not the plugin's change its content id")
	}
	files["lib/y"] = "3"
	if changed := read(); changed.ContentID == first.ContentID {
		t.Error("another file has the same content id")
	}
	if s, err := Read(filepath.Join(first.Dir, config.PluginFile)); err != nil || s.Dir != first.Dir {
		t.Errorf("%v, %v: the manifest's path names the plugin too", s, err)
	}
}

// A folder that is no plugin's, such as one with a model, is refused before it is read.
func TestLargeFoldersAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest := "name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"builtin\"\n[entry.builtin]\nfactory = \"a\"\n"
	if err := os.WriteFile(filepath.Join(dir, config.PluginFile), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "more than 4096 files or 64 MiB") {
		t.Errorf("%v", err)
	}
}
