package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/shared/config"
)

// answering is a sidecar that answers every call with a text, after a wait.
func answering(text, wait string) string {
	return `import json, os, signal, socket, struct, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["ROLLOUT_PLUGIN_SOCKET"])
while True:
    n = s.recv(4)
    if not n:
        break
    r = json.loads(s.recv(struct.unpack(">I", n)[0]))
    if r["method"] == "slow":
        open(r["payload"], "w").close()
        while not os.path.exists(r["payload"] + ".go"):
            time.sleep(` + wait + `)
    text = json.dumps({"payload": {"abi": 1} if r["method"] == "init" else "` + text + `"}).encode()
    s.sendall(struct.pack(">I", len(text)) + text)
`
}

// until waits for a condition, which a busy machine may take long for.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// While a call runs on the old process, the files change. Later calls get the new one's answers,
// and the call in flight the old one's.
func TestChangedSidecarsAreReplaced(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no python3")
	}
	var events log
	cfg := at(folder(t, map[string]string{"p.py": answering("old", "0.01"),
		config.PluginFile: manifest("p", "1", "sidecar", "[entry.sidecar]\nargs = [\"python3\", \"p.py\"]")}))
	cfg.Trusted, cfg.Concurrency = true, 4
	resolved, err := Resolve(config.Deployment{}.WithPlugin("p", cfg), "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, resolved.Plugins, Options{HotReload: true, Log: events.logger()})
	ask := func() string {
		got, err := h.Call(t.Context(), "p", "grade", nil)
		if err != nil {
			t.Error(err)
		}
		return string(got)
	}
	if got := ask(); got != `"old"` {
		t.Fatal(got)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	inFlight := make(chan string, 1)
	go func() {
		got, err := h.Call(context.WithoutCancel(t.Context()), "p", "slow", []byte(`"`+mark+`"`))
		if err != nil {
			t.Error(err)
		}
		inFlight <- string(got)
	}()
	until(t, "the call is in flight", func() bool { _, err := os.Stat(mark); return err == nil })
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(cfg.Path, "p.py"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(answering("new", "0.01"))
	until(t, "the new plugin answers", func() bool { return ask() == `"new"` })
	if err := os.WriteFile(mark+".go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-inFlight; got != `"old"` {
		t.Errorf("the call in flight got %s", got)
	}
	write("syntax error")
	until(t, "the broken one is refused", func() bool {
		return len(events.events("a changed plugin is not loaded, and the old one stays")) > 0
	})
	if got := ask(); got != `"new"` {
		t.Errorf("after a change that does not start: %s", got)
	}
	if got := events.events("plugin_reloaded"); len(got) != 1 || got[0]["plugin"] != "p" ||
		got[0]["reason"] != "its files have changed" {
		t.Errorf("%v", got)
	}
}

func TestBuiltinPluginsAreNotReloaded(t *testing.T) {
	t.Parallel()
	var events log
	dir := builtinFolder(t, "echo")
	open(t, map[string]config.Plugin{"echo": at(dir)}, Options{HotReload: true, Log: events.logger(),
		Builtins: registryOf("echo", func(context.Context, string, []byte) ([]byte, error) { return nil, nil })})
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const refused = "a changed plugin is not loaded, and the old one stays"
	until(t, "the reload is refused", func() bool { return len(events.events(refused)) > 0 })
	got := events.events(refused)[0]["error"].(string)
	if !strings.Contains(got, "reload of a compiled-in plugin is not supported") {
		t.Errorf("%s", got)
	}
}
