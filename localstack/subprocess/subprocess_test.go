package subprocess

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// role, in the environment, makes this test program one of the processes of a
// case instead.
const role = "SUBPROCESS_TEST_ROLE"

// deadline bounds waits for other processes, on a busy machine too.
const deadline = 2 * time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "program": // what a test starts
		fmt.Println(os.Getpid())
		time.Sleep(2 * deadline)
	case "test": // a test process that starts programs
		EndWithGoTest()
		for range programs {
			if err := Start(as("program", os.Args[0])); err != nil {
				panic(err)
			}
		}
		time.Sleep(2 * deadline)
	case "go": // go test, which starts the test process
		if err := as("test", os.Args[1]).Run(); err != nil {
			panic(err)
		}
	default:
		EndWithGoTest()
		os.Exit(m.Run())
	}
}

// programs is how many programs a test process of a case starts.
const programs = 3

// as returns a command that runs this test program in a role, with this
// process's standard output.
func as(what, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), role+"="+what)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

func TestProgramsEndWithTheProcessThatStartedThem(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends programs with the process that started them")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		start   func(t *testing.T) *exec.Cmd
		stopped bool // a program is stopped by SIGSTOP
	}{
		"the test process is killed": {start: func(*testing.T) *exec.Cmd { return as("test", self) }},
		"a program is stopped":       {start: func(*testing.T) *exec.Cmd { return as("test", self) }, stopped: true},
		"go test is killed": {start: func(t *testing.T) *exec.Cmd {
			path := filepath.Join(t.TempDir(), "go") // the parent is known by its name
			if err := os.Symlink(self, path); err != nil {
				t.Fatal(err)
			}
			return as("go", path, self)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := c.start(t)
			// Every process of the case has the other end of this pipe: it ends
			// when the last one of them has ended.
			out, err := output(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if err := Start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Stdout.(*os.File).Close(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			for range programs {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("a program did not start: %v", err)
				}
				pid, err := strconv.Atoi(strings.TrimSpace(line))
				if err != nil {
					t.Fatal(err)
				}
				if c.stopped {
					if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("programs run on %s after the process that started them was killed: %v", deadline, err)
			}
		})
	}
}

// output makes the command write to a pipe and returns its other end, which
// fails to read after the deadline.
func output(cmd *exec.Cmd) (*os.File, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = in
	return out, out.SetReadDeadline(time.Now().Add(deadline))
}

func TestRunWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	var exit *exec.ExitError
	if err := Run(exec.Command("sh", "-c", "exit 3")); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v, want exit code 3", err)
	}
	if err := Run(exec.Command(filepath.Join(t.TempDir(), "missing"))); err == nil {
		t.Error("a missing program was run")
	}
}

// A reserved port is not given to others who ask for any port, but to the program that asks for
// it, again and again. The test is not parallel: a program that another test starts meanwhile holds
// a copy of the listening socket between its fork and its exec, and the port stays in use.
func TestReservedPortIsForTheProgramThatAsksForIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: ports can be reserved on Linux alone")
	}
	seen := map[int]bool{}
	for range 50 {
		port, release, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if seen[port] {
			t.Fatalf("port %d is reserved twice", port)
		}
		seen[port] = true
	}
	var all []net.Listener
	for range 500 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		if port := l.Addr().(*net.TCPAddr).Port; seen[port] {
			t.Errorf("port %d is given to another", port)
		}
	}
	for _, l := range all {
		_ = l.Close() // it has no data
	}
	for port := range seen {
		for range 2 { // a program that is started again
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Close() // it has no data
		}
	}
}
