package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/inprocess"
	"rollout/functions/status"
	"rollout/gpuworker/process"
	"rollout/localstack/subprocess"
	"rollout/scripts/bench/prompts"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/embedded/bucket"
	"rollout/shared/installation"
)

// BenchmarkRun answers a whole prompts file: plan, claim, answer, commit, finalize.
// An operation is a sample.
func BenchmarkRun(b *testing.B) {
	for _, size := range []int{300, 1200} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			benchmarkRun(b, size, config.EngineMock,
				config.EngineMock)
		})
	}
}

// BenchmarkServer is BenchmarkRun over HTTP, with a server in another process that
// takes 20 ms.
func BenchmarkServer(b *testing.B) {
	bin := filepath.Join(b.TempDir(), "fakellm")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", bin,
		"rollout/scripts/fakellm").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(b.Context(), bin, "-latency", "20ms")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := subprocess.Start(cmd); err != nil {
		b.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	b.Run("bytes=300", func(b *testing.B) { benchmarkRun(b, 300, strings.TrimSpace(url)+"/v1", "fake") })
}

func benchmarkRun(b *testing.B, size int, engine, model string) {
	process.TuneMemory(0)
	dir := b.TempDir()
	src := filepath.Join(b.TempDir(), "prompts.jsonl")
	if err := prompts.Write(src, b.N, size); err != nil {
		b.Fatal(err)
	}
	l, closeAll, err := installation.OpenLocal(b.Context(), dir,
		installation.LocalOptions{Create: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer closeAll()
	d := l.Deployment
	d.Engine.URL, d.Pools = engine, []config.Pool{{Name: "default", Model: model}}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	sys := inprocess.New(l.Ports, inprocess.Config{Deployment: d,
		Uploads: l.Bucket.Watch(ctx, "prompts/", bucket.WatchOptions{Clock: l.Ports.Clock})})
	leave := make(chan string)
	done := make(chan error, 2)
	go func() { done <- sys.Run(ctx) }()
	go func() {
		_, err := process.Run(ctx, process.Options{Ports: l.Ports, Deployment: d, Pool: "default", Shutdown: leave})
		done <- err
	}()

	cpu := cpuTime(b)
	b.ResetTimer()
	info, err := bucket.PutFile(ctx, l.Bucket.Dir(), src, "prompts/p.jsonl", blob.PutOptions{})
	if err != nil {
		b.Fatal(err)
	}
	id := identity.UploadRun(d.Bucket, "prompts/p.jsonl", info.Version)
	s := await(b, api.New(l.Ports, d, cloud.OneMachine()), id)
	b.StopTimer()
	if s.Phase != run.Completed || s.Items.Done != uint64(b.N) {
		b.Fatalf("the run ended as %s with %d of %d items (%s)", s.Phase, s.Items.Done, b.N, s.Message)
	}
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(time.Microsecond)/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(maxRSS(b)/(1<<20), "max-MiB")
	cancel()
	<-done
	<-done
}

// await polls until the run has ended.
func await(b *testing.B, s *api.Service, id identity.RunID) status.Status {
	for {
		st, err := s.Show(b.Context(), id)
		if err == nil && st.Phase.Ended() {
			return st
		}
		time.Sleep(25 * time.Millisecond)
	}
}

func cpuTime(b *testing.B) time.Duration {
	u := usage(b)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func maxRSS(b *testing.B) float64 { return float64(usage(b).Maxrss) * 1024 }

func usage(b *testing.B) (u syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}
