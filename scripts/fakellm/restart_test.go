package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"rollout/localstack/subprocess"
	"strings"
	"testing"
	"time"
)

// asServer, in the environment, makes this test program run the command.
const asServer = "FAKELLM_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	subprocess.EndWithGoTest()
	os.Exit(m.Run())
}

// testProgram returns a command that runs the server.
func testProgram(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asServer+"=1")
	return c
}

// supervised starts a supervisor over the test program and returns the URL, the
// lines after it, and a function that stops it.
func supervised(t *testing.T, args ...string) (url string, events *bufio.Reader, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	s := &supervisor{delay: 10 * time.Millisecond, args: args, stdout: stdout, stderr: io.Discard, command: testProgram}
	ended := make(chan error, 1)
	go func() {
		err := s.run(ctx)
		_ = stdout.CloseWithError(io.EOF)
		ended <- err
	}()
	stop = func() error { cancel(); return <-ended }
	events = bufio.NewReader(out)
	first, err := events.ReadString('\n')
	if err != nil {
		t.Fatalf("no URL: %v, %v", err, stop())
	}
	return strings.TrimSpace(first), events, stop
}

// next reads the next event.
func next(t *testing.T, events *bufio.Reader) (e event) {
	t.Helper()
	line, err := events.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return e
}

// get returns the body at a URL.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDeadServerIsRestartedOnItsPort(t *testing.T) {
	t.Parallel()
	url, events, stop := supervised(t, "--die", "<die>")
	startTime := regexp.MustCompile(`(?m)^process_start_time_seconds .*$`)
	starts := map[string]bool{startTime.FindString(get(t, url+"/metrics")): true}
	for n := 1; n <= 2; n++ {
		if resp, err := http.Post(url+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"<die>"}`)); err == nil {
			t.Fatalf("the prompt did not kill the server: %s", resp.Status)
		}
		if died := next(t, events); died.Event != "died" || died.Deaths != n || died.Code != 1 || died.PID == 0 {
			t.Errorf("the event of death %d is %+v", n, died)
		}
		if started := next(t, events); started.Event != "started" || started.Deaths != n || started.PID == 0 {
			t.Errorf("the event of start %d is %+v", n+1, started)
		}
		starts[startTime.FindString(get(t, url+"/metrics"))] = true
	}
	if len(starts) != 3 || starts[""] {
		t.Errorf("three starts have the times %v", starts)
	}
	go func() { _, _ = io.Copy(io.Discard, events) }()
	if err := stop(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if resp, err := http.Get(url + "/health"); err == nil {
		t.Errorf("the server still answers after stop: %s", resp.Status)
	}
}

func TestServerThatDoesNotStartIsAnError(t *testing.T) {
	t.Parallel()
	s := &supervisor{delay: time.Hour, stdout: io.Discard, stderr: io.Discard, args: []string{"--nonsense"},
		command: testProgram}
	if err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Errorf("got %v", err)
	}
}
