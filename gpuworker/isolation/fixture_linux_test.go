package isolation

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileVariable makes the test program one of the hostile programs.
const hostileVariable = "ROLLOUT_TEST_HOSTILE"

// workerVariable makes the test program a worker that runs one hostile program; see
// TestNothingIsLeftOfAKilledWorker.
const workerVariable = "ROLLOUT_TEST_WORKER"

func TestMain(m *testing.M) {
	if Main(os.Args) {
		return
	}
	if name := os.Getenv(hostileVariable); name != "" {
		os.Exit(hostile[name](os.Args[1:]))
	}
	if level := os.Getenv(workerVariable); level != "" {
		os.Exit(runWorker(level, os.Args[1], os.Args[2], os.Args[3]))
	}
	os.Exit(runTests(m))
}

// folder is where all tests' sandboxes are: other users may enter it.
var folder string

func runTests(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "isolation"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	if err := errors.Join(os.Chmod(folder, 0o755), os.Mkdir(filepath.Join(folder, "tools"), 0o755),
		copyTool(filepath.Join(folder, "tools", "tool"))); err != nil {
		panic(err)
	}
	return m.Run()
}

// copyTool makes this test program one that every user may execute.
func copyTool(to string) error {
	self, err := os.Executable()
	if err != nil || os.Link(self, to) == nil {
		return err
	}
	return copyProgram(to)
}

// copyProgram copies this test program.
func copyProgram(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

// sandboxes are shared by all tests, one a level.
var sandboxes = map[Level]func() (*Sandbox, error){
	Full:    sync.OnceValues(func() (*Sandbox, error) { return openLevel(Full) }),
	Trusted: sync.OnceValues(func() (*Sandbox, error) { return openLevel(Trusted) }),
}

// withoutCgroups is a sandbox of the level Full on a machine where it may make no cgroup.
var withoutCgroups = sync.OnceValues(func() (*Sandbox, error) {
	s, err := Open(filepath.Join(folder, "samples"))
	if err == nil {
		s.groups = hierarchies{}
	}
	return s, err
})

func openLevel(level Level) (*Sandbox, error) {
	s, err := Open(filepath.Join(folder, level.String()))
	if err == nil {
		s.highest = level
	}
	return s, err
}

// fixture is a sandbox of one level.
type fixture struct {
	*Sandbox
	level Level
	tools string // a folder with this test program, which every user may read
}

// newFixture returns the sandbox of the level. It skips the test if the machine does not permit
// the level; TestProbeSaysWhatRuns shows that it says why.
func newFixture(t *testing.T, level Level) fixture {
	t.Helper()
	s, err := sandboxes[level]()
	if err != nil {
		t.Fatal(err)
	}
	if got, reason := s.Probe(t.Context()); got != level {
		skip(t, level, got, reason)
	}
	return fixture{Sandbox: s, level: level, tools: filepath.Join(folder, "tools")}
}

// skip skips a test of a level that the machine does not permit. In CI, the level Full is missing
// only where the kernel gives this user no namespaces.
func skip(t *testing.T, want, got Level, reason string) {
	t.Helper()
	if want == Full && os.Getenv("CI") != "" {
		c := exec.Command("/proc/self/exe", "-test.run", "^$")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		if err := c.Run(); err == nil {
			t.Fatalf("the machine permits namespaces, and yet the level %s alone: %s", got, reason)
		}
	}
	t.Skipf("this machine permits the level %s, not %s: %s", got, want, reason)
}

// newSampledFixture returns the sandbox of the level Full without a cgroup.
func newSampledFixture(t *testing.T) fixture {
	t.Helper()
	s, err := withoutCgroups()
	if err != nil {
		t.Fatal(err)
	}
	if got, reason := s.Probe(t.Context()); got != Full {
		skip(t, Full, got, reason)
	}
	return fixture{Sandbox: s, level: Full, tools: filepath.Join(folder, "tools")}
}

// publicFolder returns a folder of the test's that other users may enter.
func publicFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// limits are far above what the tests' programs need, so that a busy machine changes nothing.
func limits() Limits {
	return Limits{Wall: 5 * time.Minute, CPU: 5 * time.Minute, Memory: 512 << 20, Processes: 100, Output: 1 << 20,
		Keep: 64 << 10, Disk: 64 << 20, Files: 2000, OutFiles: 100, OutBytes: 1 << 20}
}

// hostile returns the command that is one of the hostile programs, or "sh" with a script.
func (f fixture) hostile(name string, args ...string) Command {
	return Command{Args: append([]string{filepath.Join(f.inside(), "tool")}, args...),
		Env:     map[string]string{hostileVariable: name},
		Folders: []Folder{{Host: f.tools, Inside: "/tools"}}, Limits: limits(), Trusted: true}
}

func (f fixture) shell(script string) Command {
	return Command{Args: []string{"sh", "-c", script}, Folders: []Folder{{Host: f.tools, Inside: "/tools"}},
		Limits: limits(), Trusted: true}
}

func (f fixture) bash(script string) Command {
	c := f.shell(script)
	c.Args[0] = "bash"
	return c
}

// inside is where the command sees the tools.
func (f fixture) inside() string {
	if f.level == Full {
		return "/tools"
	}
	return f.tools
}

// run runs the command, and requires the verdict.
func (f fixture) run(t *testing.T, c Command, want Verdict) Outcome {
	t.Helper()
	o, err := f.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("run %q: %v", c.Args, err)
	}
	if o.Verdict != want {
		t.Fatalf("run %q: %s %d %s %q, want %s\nstdout: %s\nstderr: %s", c.Args, o.Verdict, o.ExitCode, o.Signal, o.Reason,
			want, o.Stdout.Kept, o.Stderr.Kept)
	}
	if o.Level != f.level || o.Enforced.Kill == "" {
		t.Errorf("level %s, enforced %+v", o.Level, o.Enforced)
	}
	return o
}

// says runs the command, which must end with 0, and returns its output without the last line end.
func (f fixture) says(t *testing.T, c Command) string {
	t.Helper()
	o := f.run(t, c, Exited)
	if o.ExitCode != 0 {
		t.Fatalf("exit code %d\nstdout: %s\nstderr: %s", o.ExitCode, o.Stdout.Kept, o.Stderr.Kept)
	}
	return strings.TrimSuffix(string(o.Stdout.Kept), "\n")
}

// eachLevel runs the test at each level that the machine permits, and at the level Full also
// without a cgroup.
func eachLevel(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	t.Run("sampled", func(t *testing.T) {
		t.Parallel()
		test(t, newSampledFixture(t))
	})
	for _, level := range []Level{Full, Trusted} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, level))
		})
	}
}

// write writes files of the given texts below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// door is a Unix socket by which a command tells the test that it runs, and waits.
type door struct {
	path     string
	arrivals chan net.Conn
}

func newDoor(t *testing.T) door {
	t.Helper()
	dir, err := os.MkdirTemp(folder, "") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	d := door{path: filepath.Join(dir, "s"), arrivals: make(chan net.Conn, 16)}
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.arrivals <- conn
		}
	}()
	return d
}

// through lets the command reach the door at the address in the variable DOOR.
func (d door) through(c Command) Command {
	c.Forwards = append(c.Forwards, Forward{Socket: d.path, Env: func(address string) map[string]string {
		return map[string]string{"DOOR": address}
	}})
	return c
}

// wait waits until the command has come.
func (d door) wait(t *testing.T) net.Conn {
	t.Helper()
	select {
	case conn := <-d.arrivals:
		return conn
	case <-t.Context().Done():
		t.Fatal("the command did not come")
		return nil
	}
}

// newMark returns an argument by which the test finds its processes among all of the machine.
func newMark(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), os.Getpid()) }

// processes returns the processes of the machine that have the text among their arguments.
func processes(t *testing.T, text string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline")); err == nil &&
			strings.Contains(string(line), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}
