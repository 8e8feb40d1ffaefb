package sidecar

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/isolation"
	"rollout/shared/config"
	"rollout/shared/fault"
)

var sandboxes string

func TestMain(m *testing.M) {
	if isolation.Main(os.Args) {
		return
	}
	var err error
	if sandboxes, err = os.MkdirTemp("", "sidecar-sandboxes"); err != nil {
		panic(err)
	}
	if err := os.Chmod(sandboxes, 0o755); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(sandboxes)
	os.Exit(code)
}

// head is the beginning of all plugins of the tests: what speaks the protocol.
const head = `import json, os, signal, socket, struct, sys, time
abi = 1
def exactly(n):
    b = b""
    while len(b) < n:
        part = s.recv(n - len(b))
        if not part:
            sys.exit(0)
        b += part
    return b
def send(reply):
    text = json.dumps(reply).encode()
    s.sendall(struct.pack(">I", len(text)) + text)
def call(method, payload):
    return payload
def preflight():
    return {}
def serve(**ready):
    while True:
        r = json.loads(exactly(struct.unpack(">I", exactly(4))[0]))
        if r["method"] == "init":
            send({"payload": dict(ready, abi=abi)})
        elif r["method"] == "preflight":
            send(preflight())
        elif r["method"] == "shutdown":
            send({"payload": {}})
            sys.exit(0)
        else:
            send({"payload": call(r["method"], r.get("payload"))})
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["ROLLOUT_PLUGIN_SOCKET"])
`

// logged collects what is logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// optionsOf returns those of a Python program; a sandbox if it is not trusted.
func optionsOf(t *testing.T, program string, trusted bool) Options {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plugin.py"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	m := config.DefaultPluginManifest()
	m.Name, m.Version, m.Kind, m.Mode = "p", "1", config.PluginGrader, config.PluginSidecar
	m.Entry.Sidecar.Args = []string{"python3", "plugin.py"}
	o := Options{Manifest: m, Dir: dir, Processes: 1, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	if trusted {
		return o
	}
	var err error
	if o.Sandbox, err = isolation.Open(sandboxes); err != nil {
		t.Fatal(err)
	}
	if level, reason := o.Sandbox.Probe(t.Context()); level != isolation.Full {
		t.Skip("this machine has no sandboxes, which the tests of isolation judge: " + reason)
	}
	return o
}

func start(t *testing.T, o Options) *Pool {
	t.Helper()
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// both runs a test with a plugin in the sandbox, and with a trusted one.
func both(t *testing.T, test func(t *testing.T, trusted bool)) {
	for name, trusted := range map[string]bool{"sandbox": false, "trusted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, trusted)
		})
	}
}

func TestSidecarsAnswerAndEnd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, trusted bool) {
		var log logged
		o := optionsOf(t, head+"print('hello'); serve()", trusted)
		o.Log, o.Processes = slog.New(slog.NewTextHandler(&log, nil)), 2
		p, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				got, err := p.Call(t.Context(), "grade", []byte(`{"a":"ü"}`))
				if err != nil || string(got) != `{"a": "\u00fc"}` {
					t.Errorf("%s, %v", got, err)
				}
			})
		}
		calls.Wait()
		if _, err := p.Call(t.Context(), "shutdown", nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("a call of the worker's own method: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); !strings.Contains(text, "plugin_output") || !strings.Contains(text, "hello") {
			t.Errorf("the log lacks what the plugin wrote: %s", text)
		}
	})
}

func TestSocketsAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, trusted bool) {
		o := optionsOf(t, head+`
def call(method, payload):
    at = os.environ["ROLLOUT_PLUGIN_SOCKET"]
    return [oct(os.stat(at).st_mode & 0o777), at]
serve()`, trusted)
		p, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Call(t.Context(), "grade", nil)
		if err != nil || !strings.Contains(string(got), `"0o600"`) {
			t.Errorf("%s, %v", got, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		at := strings.Split(string(got), `"`)[3]
		if _, err := os.Lstat(at); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket %s is left: %v", at, err)
		}
	})
}

// A trusted plugin does not get the worker's environment, which may have secrets.
func TestSidecarsDoNotGetTheWorkersEnvironment(t *testing.T) {
	t.Setenv("ROLLOUT_SECRET_KEY", "s3cret")
	for _, trusted := range []bool{false, true} {
		p := start(t, optionsOf(t, head+`
def call(method, payload):
    return dict(os.environ)
serve()`, trusted))
		if got, err := p.Call(t.Context(), "grade", nil); err != nil || strings.Contains(string(got), "s3cret") {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// TestSidecarsThatDoNotStartSayWhy has a program, and a part of the error.
func TestSidecarsThatDoNotStartSayWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ program, want string }{
		"another ABI":    {head + "abi = 3\nserve()", "plugin ABI mismatch: got 3, expected 1"},
		"a syntax error": {"def", "SyntaxError"},
		"an early end":   {"import sys; sys.exit(3)", "3"},
		"preflight fails": {head +
			"def preflight(): return {'error': 'no model'}\nserve(preflight=True)", `the plugin says "no model"`},
		"a 2 GB frame": {head + "s.sendall(b'\\x7f\\xff\\xff\\xff')\ntime.sleep(99)",
			"its frame says that it has 2147483647 bytes"},
		"a reply that is not JSON": {head + "s.sendall(b'\\0\\0\\0\\1x')\ntime.sleep(99)", "the plugin's reply is malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, trusted bool) {
				p, err := Start(t.Context(), optionsOf(t, c.program, trusted))
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v, want %s", p, err, c.want)
				}
			})
		})
	}
}

func TestCrashedSidecarsStartAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, trusted bool) {
		p := start(t, optionsOf(t, head+`
def call(method, payload):
    if payload == "die":
        sys.stderr.write("out of cheese")
        sys.stderr.flush()
        os._exit(7)
    return payload
serve()`, trusted))
		for range 2 {
			_, err := p.Call(t.Context(), "grade", []byte(`"die"`))
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "7; it wrote \"out of cheese\"") {
				t.Errorf("%v", err)
			}
			if got, err := p.Call(t.Context(), "grade", []byte(`1`)); err != nil || string(got) != "1" {
				t.Errorf("%s, %v", got, err)
			}
		}
	})
}

func TestHungSidecarsAreKilledAtTheEndOfTheirTime(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, trusted bool) {
		p := start(t, optionsOf(t, head+`
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def call(method, payload):
    if payload == "hang":
        time.sleep(1000)
    return os.getpid()
serve()`, trusted))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := p.Call(ctx, "grade", []byte(`"hang"`))
		if !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := p.Call(t.Context(), "grade", nil); err != nil {
			t.Error(err)
		}
	})
}

// TestHostileSidecarsEndWithAnError has what a plugin does in a call, and a part of the error.
// Another plugin answers after each.
func TestHostileSidecarsEndWithAnError(t *testing.T) {
	t.Parallel()
	good := optionsOf(t, head+"serve()", false)
	other := start(t, good)
	for name, c := range map[string]struct{ call, want string }{
		"endless output": {"while True: os.write(1, b'x' * 65536)", "output_limit"},
		"a fork bomb":    {"while True: os.fork()", "process_limit"},
		"endless memory": {"x = []\n    while True: x.append(bytearray(1 << 20))", "memory_limit"},
		"full disk":      {"f = open('/tmp/x', 'wb')\n    while True: f.write(b'x' * 65536)", "_limit"},
		"a 2 GB frame":   {"s.sendall(b'\\x7f\\xff\\xff\\xff')\n    time.sleep(99)", "2147483647 bytes"},
		"no JSON":        {"s.sendall(b'\\0\\0\\0\\1x')\n    time.sleep(99)", "the plugin's reply is malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := optionsOf(t, head+"def call(method, payload):\n    "+c.call+"\nserve()", false)
			o.Manifest.Runtime.MemoryMB = 128
			p := start(t, o)
			_, err := p.Call(t.Context(), "grade", nil)
			// Without a cgroup, limits of processes and memory show themselves in the program.
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.want) &&
				!strings.Contains(err.Error(), "MemoryError") && !strings.Contains(err.Error(), "BlockingIOError") {
				t.Errorf("%v, want %s", err, c.want)
			}
			if got, err := other.Call(t.Context(), "grade", []byte("1")); err != nil || string(got) != "1" {
				t.Errorf("another plugin is harmed: %s, %v", got, err)
			}
		})
	}
}

func TestSandboxedSidecarsHaveNoNetworkAndNoFiles(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := optionsOf(t, head+`
def call(method, payload):
    out = []
    for f in (lambda: open(payload["file"]), lambda: socket.create_connection(("192.0.2.1", 80), 5),
              lambda: socket.create_connection(("127.0.0.1", payload["port"]), 5)):
        try:
            f()
            out.append("done")
        except OSError as e:
            out.append(type(e).__name__)
    return out
serve()`, false)
	p := start(t, o)
	got, err := p.Call(t.Context(), "grade", []byte(`{"file":"`+secret+`","port":22}`))
	if err != nil || strings.Contains(string(got), "done") {
		t.Errorf("%s, %v", got, err)
	}
}

// A plugin can't put a link in the place of the socket: the worker listens, and opens no path.
func TestTheWorkerFollowsNoLinkInPlaceOfTheSocket(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, trusted bool) {
		p := start(t, optionsOf(t, head+`
at = os.environ["ROLLOUT_PLUGIN_SOCKET"]
os.unlink(at)
os.symlink("/dev/null", at)
serve()`, trusted))
		if got, err := p.Call(t.Context(), "grade", []byte("1")); err != nil || string(got) != "1" {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// The program starts a child and ends. Nothing is left of the group.
func TestNothingIsLeftOfATrustedProgram(t *testing.T) {
	t.Parallel()
	p, err := Start(t.Context(), optionsOf(t, head+`
import subprocess
child = subprocess.Popen(["sleep", "1000"])
def call(method, payload):
    return child.pid
signal.signal(signal.SIGTERM, signal.SIG_IGN)
serve()`, true))
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Call(t.Context(), "grade", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(got))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for alive(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("the process %d is left", pid)
		}
	}
}

// alive reports whether a process runs and is no zombie that its new parent has not seen yet.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestFramesOfTheProtocolAreTheWires(t *testing.T) {
	t.Parallel()
	p := start(t, optionsOf(t, head+`
r = exactly(struct.unpack(">I", exactly(4))[0])
send({"payload": {"abi": 1}})
first = json.loads(r)
def call(method, payload):
    return first
serve()`, true))
	got, err := p.Call(t.Context(), "grade", nil)
	want := `{"method": "init", "payload": {"abi": 1, "name": "p", "version": "1", "kind": "grader"}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
