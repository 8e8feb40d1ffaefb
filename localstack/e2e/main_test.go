package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
)

// The programs under test, built once.
const (
	rollout   = "rollout"
	gpuworker = "gpuworker"
	fakellm   = "fakellm"
	// withBuiltin is the command line with a plugin that is compiled in.
	withBuiltin = "builtinplugin"
)

// The secrets reward-key and webhook-key of the programs.
const (
	rewardKey  = "s3cr3t-reward"
	webhookKey = "whsec_czNjcjN0LXdlYmhvb2s=" // base64 of s3cr3t-webhook
)

// binaries is the folder of the programs. Only TestMain writes it.
var binaries string

func TestMain(m *testing.M) {
	if name := os.Getenv(agentVariable); name != "" {
		os.Exit(runAgent(name))
	}
	subprocess.EndWithGoTest()
	// nohup ignores SIGHUP, and the programs would inherit that. A signal with a
	// handler has its default action in the programs.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// buildAndRun builds the programs and runs the tests.
func buildAndRun(m *testing.M) (code int, err error) {
	flag.Parse()
	// The tests wait for processes most of the time, so more of them may run at
	// once than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		return 1, err
	}
	if binaries = os.Getenv(helperVariable); binaries != "" {
		return m.Run(), nil
	}
	for name, value := range map[string]string{"REWARD_KEY": rewardKey, "WEBHOOK_KEY": webhookKey} {
		if err := os.Setenv("ROLLOUT_SECRET_"+name, value); err != nil {
			return 1, err
		}
	}
	if err := scenarios.NoteSources(filepath.Join("..", "..")); err != nil {
		return 1, err
	}
	if binaries, err = os.MkdirTemp("", "rollout-e2e-*"); err != nil {
		return 1, err
	}
	defer func() {
		if removed := os.RemoveAll(binaries); err == nil {
			err = removed
		}
	}()
	args := []string{"build", "-o", binaries + "/",
		"rollout/scripts/rollout", "rollout/gpuworker", "rollout/scripts/fakellm", "rollout/localstack/builtinplugin"}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// Polling for what other processes do.
const (
	patience = 4 * time.Minute
	pollGap  = 25 * time.Millisecond
)

// eventually polls until ok returns true. It fails the test after patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(pollGap)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %s: %s", patience, what)
		}
		<-tick.C
	}
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

// write writes a file, creates its folder, and returns the path.
func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines splits content into lines without their line feeds. It fails the test
// if the last line has no line feed.
func lines(t *testing.T, content string) []string {
	t.Helper()
	if content == "" {
		return nil
	}
	rest, ok := strings.CutSuffix(content, "\n")
	if !ok {
		t.Errorf("the last line has no line feed: %.100q", content)
	}
	return strings.Split(rest, "\n")
}
