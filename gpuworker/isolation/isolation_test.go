package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
)

func TestCommandIsChecked(t *testing.T) {
	t.Parallel()
	good := func() Command {
		return Command{Args: []string{"sh"}, Limits: Limits{Wall: 1, CPU: 1, Memory: leastMemory, Processes: 1, Output: 1,
			Keep: 1, Disk: 1, Files: 1, OutFiles: 1, OutBytes: 1}}
	}
	c := good()
	if err := c.check(); err != nil {
		t.Errorf("a good command: %v", err)
	}
	show := func(at string) func(c *Command) {
		return func(c *Command) { c.Folders = []Folder{{Host: "/a", Inside: at}} }
	}
	for name, test := range map[string]struct {
		change func(c *Command)
		want   string
	}{
		"no program":                  {func(c *Command) { c.Args = nil }, "no program"},
		"zero byte":                   {func(c *Command) { c.Args = append(c.Args, "a\x00b") }, "zero byte"},
		"malformed variable":          {func(c *Command) { c.Env = map[string]string{"A=B": ""} }, `"A=B"`},
		"relative folder":             {func(c *Command) { c.Staged = []string{"task"} }, `"task"`},
		"relative out":                {func(c *Command) { c.Out = "out" }, `"out"`},
		"folder over the system's":    {show("/usr/a"), `"/usr/a"`},
		"folder over the work folder": {show("/work"), `"/work"`},
		"folder above the root":       {show("/a/../.."), `"/a/../.."`},
		"root":                        {show("/"), `"/"`},
		"relative socket":             {func(c *Command) { c.Forwards = []Forward{{Socket: "s"}} }, `"s"`},
		"socket outside of tmp": {func(c *Command) {
			c.Forwards = []Forward{{Socket: "/s", Path: "/work/s"}}
		}, `"/work/s"`},
		"socket and port": {func(c *Command) {
			c.Forwards = []Forward{{Socket: "/s", Path: "/tmp/s", Port: 1}}
		}, "the port 1"},
		"socket of a trusted command": {func(c *Command) {
			c.Trusted, c.Forwards = true, []Forward{{Socket: "/s", Path: "/tmp/s"}}
		}, "not trusted"},
		"port":   {func(c *Command) { c.Forwards = []Forward{{Socket: "/s", Port: 70000}} }, "70000"},
		"limit":  {func(c *Command) { c.Limits.Disk = 0 }, "limit"},
		"memory": {func(c *Command) { c.Limits.Memory = 1 << 20 }, "memory"},
	} {
		c := good()
		test.change(&c)
		if err := c.check(); !fault.Is(fault.WithKind(fault.Invalid, err, "check"), fault.Invalid) ||
			err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

func TestVerdictNamesTheLimit(t *testing.T) {
	t.Parallel()
	l := Limits{CPU: time.Second, Memory: 100, Processes: 10}
	for name, test := range map[string]struct {
		code   int
		signal string
		use    usage
		want   Verdict
	}{
		"own end":                  {7, "", usage{}, Exited},
		"own end at its limits":    {0, "", usage{memory: 100, processes: 10, cpu: time.Second - 1}, Exited},
		"signal":                   {0, "SIGSEGV", usage{}, Signaled},
		"killed for memory":        {0, "SIGKILL", usage{killed: true}, MemoryLimit},
		"memory of all":            {1, "", usage{memory: 101}, MemoryLimit},
		"a process refused":        {2, "", usage{refused: true}, ProcessLimit},
		"too many processes":       {2, "", usage{processes: 11}, ProcessLimit},
		"disk full":                {1, "", usage{diskFull: true}, DiskLimit},
		"file too large":           {0, "SIGXFSZ", usage{}, DiskLimit},
		"CPU":                      {0, "", usage{cpu: time.Second}, CPULimit},
		"CPU of one process":       {0, "SIGXCPU", usage{}, CPULimit},
		"memory before everything": {0, "SIGXCPU", usage{killed: true, refused: true, diskFull: true}, MemoryLimit},
	} {
		if got := l.ended(test.code, test.signal, test.use); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestCopyLeavesLinksAlone(t *testing.T) {
	t.Parallel()
	src, dst, outside := t.TempDir(), t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(outside, "secret"): "s", filepath.Join(src, "file"): "f"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"file link": filepath.Join(outside, "secret"), "folder link": outside} {
		if err := os.Symlink(target, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	copyTo := func(c copier) (Collected, error) {
		from, err := os.OpenRoot(src)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		to, err := os.OpenRoot(dst)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		return c.copy(to, from)
	}
	if _, err := copyTo(copier{files: 9, bytes: 99, strict: true}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a strict copy: %v", err)
	}
	dst = t.TempDir()
	got, err := copyTo(copier{files: 9, bytes: 99})
	if err != nil || len(got.Files) != 1 || got.Missing != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	dst = t.TempDir()
	if _, err := copyTo(copier{files: 9, bytes: 99, links: true}); err != nil {
		t.Error(err)
	}
	if target, err := os.Readlink(filepath.Join(dst, "folder link")); err != nil || target != outside {
		t.Errorf("link to %q, %v", target, err)
	}
}
