package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rollout/localstack/subprocess"
)

// output collects the output of a process. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// llm is a running fakellm.
type llm struct {
	t   *testing.T
	url string
}

// serve starts an inference server until the test ends.
func serve(t *testing.T, args ...string) llm {
	t.Helper()
	cmd := exec.Command(programs.Path("fakellm"), args...)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	s := llm{t: t}
	eventually(t, "fakellm prints its URL", func() bool {
		line, _, ok := strings.Cut(out.String(), "\n")
		s.url = line
		return ok
	})
	return s
}

var requestsTotal = regexp.MustCompile(`(?m)^fakellm_requests_total\S* (\d+)$`)

// requests is how many requests the server has received so far.
func (s llm) requests() int {
	s.t.Helper()
	answer, err := http.Get(s.url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close() // read only
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0
	for _, m := range requestsTotal.FindAllSubmatch(body, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		sum += n
	}
	return sum
}

// rollout runs the command line to its end and returns its output. Its environment
// has nothing of this process's but PATH.
func rollout(t *testing.T, environment []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Path("rollout"), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	err := subprocess.Run(cmd)
	return out.String(), err
}

// do runs a command that must succeed and returns its output.
func do(t *testing.T, environment []string, args ...string) string {
	t.Helper()
	out, err := rollout(t, environment, args...)
	if err != nil {
		t.Fatalf("rollout %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// write writes a file and returns its path.
func write(t *testing.T, folder, name, content string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns a file's content.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
