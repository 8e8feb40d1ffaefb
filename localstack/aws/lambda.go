package emulators

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/subprocess"
)

// LocalFunction is a function of the product in its own process, with the runtime
// API from which it receives events. It implements what Lambda documents. It
// handles one invocation at a time.
type LocalFunction struct {
	events  chan invocation
	mu      sync.Mutex
	waiting map[string]chan Reply
	calls   int
	// Polled is closed when the function first polls for an event.
	Polled chan struct{}
	once   sync.Once
}

// Reply is the answer of a function.
type Reply struct {
	Body   string
	Failed bool // the function reported an error
}

type invocation struct {
	id, event string
	deadline  time.Time
}

// StartFunction builds functions/aws/NAME and runs it until the test ends. Its
// environment has the given variables and those that every process needs.
func StartFunction(t testing.TB, name string, environment ...string) *LocalFunction {
	t.Helper()
	l := &LocalFunction{events: make(chan invocation), waiting: map[string]chan Reply{}, Polled: make(chan struct{})}
	api := httptest.NewServer(l)
	t.Cleanup(api.Close)
	binary := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", binary,
		"./functions/aws/"+name)
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = append(environment, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(),
		"AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(api.URL, "http://"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := &strings.Builder{}
	cmd.Stderr = log
	if err := subprocess.Start(cmd); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s: %s", name, log)
		}
	})
	return l
}

// Environment is the environment of a function of a deployment on the endpoint.
// config is the text of its config, and functions the address of the Lambda API
// that it calls.
func (e Endpoint) Environment(config, functions string) []string {
	return []string{"AWS_ENDPOINT_URL=" + e.URL, "AWS_ENDPOINT_URL_LAMBDA=" + functions, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=000000000000",
		"AWS_SECRET_ACCESS_KEY=none", "AWS_EC2_METADATA_DISABLED=true", "ROLLOUT_CONFIG=" + config}
}

// Deployment is the config of a deployment on the endpoint. The names of its
// queues begin with its name.
func (e Endpoint) Deployment(name, prefix string, secrets ...string) string {
	return fmt.Sprintf("schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = %q\n"+
		"[cloud.s3]\nbucket = %q\nprefix = %q\n"+
		"[cloud.dynamodb]\ntable = %q\n[cloud.secrets]\nallowlist = [%s]\n[[pool]]\nname = \"default\"\nmodel = \"mock\"\n",
		name, e.Bucket, prefix, e.Table, quoted(secrets))
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strconv.Quote(n)
	}
	return strings.Join(out, ", ")
}

// Invoke calls the function with an event and returns its answer.
func (l *LocalFunction) Invoke(t testing.TB, event string, limit time.Duration) Reply {
	t.Helper()
	l.mu.Lock()
	l.calls++
	in := invocation{fmt.Sprintf("request-%d", l.calls), event, time.Now().Add(limit)}
	reply := make(chan Reply, 1)
	l.waiting[in.id] = reply
	l.mu.Unlock()
	timeout := time.NewTimer(patience + limit)
	defer timeout.Stop()
	select {
	case l.events <- in:
	case <-timeout.C:
		t.Fatal("the function does not poll for events")
	}
	select {
	case r := <-reply:
		return r
	case <-timeout.C:
		t.Fatal("the function does not answer")
	}
	return Reply{}
}

// ServeHTTP implements the runtime API.
func (l *LocalFunction) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/2018-06-01/runtime/invocation/")
	if path == "next" {
		l.once.Do(func() { close(l.Polled) })
		select {
		case in := <-l.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", in.id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(in.deadline.UnixMilli()))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:test")
			_, _ = io.WriteString(w, in.event)
		case <-r.Context().Done():
		}
		return
	}
	id, what, _ := strings.Cut(path, "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = fmt.Appendf(body, " (cut: %v)", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if reply := l.waiting[id]; reply != nil {
		reply <- Reply{Body: string(body), Failed: what == "error"}
		delete(l.waiting, id)
	}
	w.WriteHeader(http.StatusAccepted)
}
