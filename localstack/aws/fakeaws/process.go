package fakeaws

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rollout/localstack/subprocess"
)

const (
	runtimePath = "/runtime/"
	nextPath    = "/2018-06-01/runtime/invocation/next"
	answerPath  = "/2018-06-01/runtime/invocation/"
	sigKill     = syscall.SIGKILL
)

// process is an execution environment of a function. It handles one invocation at a
// time and is stopped while it has none.
type process struct {
	id, function string
	cmd          *exec.Cmd
	log          *tail
	next         chan invocation
	answers      chan Reply
	ended        chan struct{}
	polls        int
}

// invocation is one invocation of a function.
type invocation struct {
	event []byte
	trace string
	limit time.Duration
}

// start starts a process of a function's program.
func (l *lambda) start(function, id string) (*process, error) {
	cmd := exec.Command(filepath.Join(l.cloud.options.Programs, function, "bootstrap"))
	p := &process{id: id, function: function, cmd: cmd, log: &tail{}, next: make(chan invocation),
		answers: make(chan Reply, 1), ended: make(chan struct{})}
	cmd.Env = append(l.cloud.Environment(function), "PATH="+os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR="+os.TempDir(),
		"AWS_LAMBDA_FUNCTION_NAME="+l.cloud.at.FunctionName(function),
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE="+strconv.Itoa(Memory(function)),
		"AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(l.cloud.URL, "http://")+runtimePath+id)
	if file := l.cloud.options.Certificates; file != "" {
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+file)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := l.begin(p); err != nil {
		return nil, fmt.Errorf("start the function %s: %w", function, err)
	}
	go func() {
		_ = cmd.Wait() // callers need no exit code
		close(p.ended)
	}()
	return p, nil
}

// begin starts the process and registers it under one lock, so that close kills all
// processes.
func (l *lambda) begin(p *process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if err := subprocess.Start(p.cmd); err != nil {
		return err
	}
	l.procs[p.id] = p
	return nil
}

// call passes the process an invocation and waits for its answer.
func (p *process) call(in invocation) (Reply, error) {
	limit := time.NewTimer(in.limit)
	defer limit.Stop()
	select {
	case p.next <- in:
	case <-p.ended:
		return Reply{}, fmt.Errorf("%w: %s", errExited, p.log)
	case <-limit.C:
		return Reply{}, errTimedOut
	}
	select {
	case r := <-p.answers:
		return r, nil
	case <-p.ended:
		return Reply{}, fmt.Errorf("%w: %s", errExited, p.log)
	case <-limit.C:
		return Reply{}, errTimedOut
	}
}

// hasEnded reports whether the process has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill kills the process with SIGKILL.
func (p *process) kill() {
	p.signal(sigKill)
	<-p.ended
}

func (p *process) signal(s syscall.Signal) {
	if !p.hasEnded() {
		_ = p.cmd.Process.Signal(s) // it may have just ended
	}
}

// serveRuntime serves the runtime API of a process.
func (l *lambda) serveRuntime(w http.ResponseWriter, r *http.Request) {
	id, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, runtimePath), "/")
	path = "/" + path
	l.mu.Lock()
	p := l.procs[id]
	l.mu.Unlock()
	switch {
	case p == nil:
		w.WriteHeader(http.StatusForbidden)
	case path == nextPath:
		p.serveNext(w, r, l.cloud.arn(p.function))
	case strings.HasPrefix(path, answerPath):
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the process ended during its answer
		}
		select {
		case p.answers <- Reply{Body: body, Failed: strings.HasSuffix(path, "/error")}:
		default: // the call has timed out
		}
		w.WriteHeader(http.StatusAccepted)
	default: // an error at the start; the process ends by itself
		w.WriteHeader(http.StatusAccepted)
	}
}

// serveNext gives the process its next invocation. The process is stopped until
// then, except before its first one.
func (p *process) serveNext(w http.ResponseWriter, r *http.Request, arn string) {
	if p.polls++; p.polls > 1 {
		p.signal(syscall.SIGSTOP)
	}
	select {
	case in := <-p.next:
		p.signal(syscall.SIGCONT)
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprintf("%s-%d", p.id, p.polls))
		w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(in.limit).UnixMilli()))
		w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", arn)
		w.Header().Set("Lambda-Runtime-Trace-Id", in.trace)
		_, _ = w.Write(in.event) // the end of the process reports a failure
	case <-r.Context().Done():
	}
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const longestTail = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - longestTail; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
