package emulators

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"rollout/localstack/subprocess"
	"rollout/shared/aws"
)

// ExternalEmulators are emulators that run in other processes. Dir is the folder
// in which scripts/emulators/install.sh installs them.
type ExternalEmulators struct{ Dir string }

// RequireExternal returns the emulators in the folder that ROLLOUT_EMULATORS names.
// Without it the test is skipped, or fails in CI.
func RequireExternal(t testing.TB) ExternalEmulators {
	t.Helper()
	dir := os.Getenv("ROLLOUT_EMULATORS")
	switch {
	case dir != "":
		return ExternalEmulators{dir}
	case os.Getenv("CI") == "true":
		t.Fatal("ROLLOUT_EMULATORS is not set: run make test-emulators, which installs the emulators")
	}
	t.Skip("SKIPPED: ROLLOUT_EMULATORS is not set: run make test-emulators, which installs the emulators")
	return ExternalEmulators{}
}

// MiniStack starts an emulator of all services.
func (o ExternalEmulators) MiniStack(t testing.TB) Endpoint {
	t.Helper()
	port := freePort(t)
	// Its functions use the corrected address as well.
	corrected := front(t, "http://127.0.0.1:"+port, newRanged)
	o.start(t, "ministack", port, []string{filepath.Join(o.Dir, "bin", "ministack")},
		"GATEWAY_PORT="+port, "MINISTACK_HOST=127.0.0.1", "BIND_HOST=127.0.0.1", "IOT_MTLS_ENABLED=0", "SFTP_ENABLED=0",
		"LAMBDA_EXECUTOR=local", "AWS_ENDPOINT_URL="+corrected)
	name := fresh()
	return Endpoint{Name: "ministack", URL: corrected, Bucket: "bucket-" + name, Table: "table-" + name}
}

// Dynalite starts an emulator of DynamoDB.
func (o ExternalEmulators) Dynalite(t testing.TB) Endpoint {
	t.Helper()
	port := freePort(t)
	o.start(t, "dynalite", port, []string{o.node(), o.module("dynalite", "cli.js"), "--host", "127.0.0.1", "--port",
		port, "--createTableMs", "0"})
	return Endpoint{Name: "dynalite", URL: "http://127.0.0.1:" + port, Table: "table-" + fresh()}
}

// Fauxqs starts an emulator of SQS.
func (o ExternalEmulators) Fauxqs(t testing.TB) Endpoint {
	t.Helper()
	port := freePort(t)
	o.start(t, "fauxqs", port, []string{o.node(), o.module("fauxqs", "dist/cli.js")},
		"FAUXQS_PORT="+port, "FAUXQS_HOST=127.0.0.1", "FAUXQS_LOGGER=false")
	return Endpoint{Name: "fauxqs", URL: "http://127.0.0.1:" + port}
}

func (o ExternalEmulators) node() string { return filepath.Join(o.Dir, "bin", "node") }

func (o ExternalEmulators) module(name, file string) string {
	return filepath.Join(o.Dir, "node_modules", name, file)
}

const patience = 15 * time.Minute // for a process to listen, and for other waits

// start starts an emulator. Its environment has nothing of this process's.
func (o ExternalEmulators) start(t testing.TB, name, port string, command []string, environment ...string) {
	t.Helper()
	if _, err := os.Stat(command[0]); err != nil {
		t.Fatalf("%s is not installed: %v (run make test-emulators, which installs it)", name, err)
	}
	home := t.TempDir()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = home
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}, environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run(t, name, port, cmd)
}

// run starts a command in its own process group and waits until it listens on the
// port. The group is killed when the test ends.
func run(t testing.TB, name, port string, cmd *exec.Cmd) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = io.Discard, &stderr
	if err := subprocess.Start(cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	stop := func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-ended
	}
	t.Cleanup(stop)
	if err := listens(t.Context(), port, ended); err != nil {
		stop()
		t.Fatalf("%s: %v: %s", name, err, stderr.String())
	}
}

// listens waits until a server listens on the port.
func listens(ctx context.Context, port string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("the process ended before it listened on port %s", port)
		case <-ctx.Done():
			return fmt.Errorf("the process does not listen on port %s: %w", port, err)
		case <-again.C:
		}
	}
}

// freePort returns a port that is free at the moment.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it was never used
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// metadataVariable, in the environment, makes this test program a metadata
// service; see TestMain.
const metadataVariable = "ROLLOUT_METADATA_MOCK"

// StartMetadata starts amazon-ec2-metadata-mock, Amazon's mock of an instance's
// metadata service, which requires a token. It runs in its own process since it
// uses global variables. arguments are those of its command, such as "spot". It
// returns the SDK configuration of an instance that uses it.
func StartMetadata(t testing.TB, arguments ...string) awssdk.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	cmd := exec.Command(self, append(arguments, "--imdsv2", "--hostname", "127.0.0.1", "--port", port)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{metadataVariable + "=1", "HOME=" + cmd.Dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run(t, "the metadata service", port, cmd)
	cfg, err := aws.LoadConfig(t.Context(), slog.New(slog.DiscardHandler), config.WithRegion("us-east-1"),
		config.WithEC2IMDSEndpoint("http://127.0.0.1:"+port))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
