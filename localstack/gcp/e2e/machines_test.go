package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/subprocess"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/record"
)

// quickHealth are timings by which a dead worker is noticed within seconds.
const quickHealth = `
[health]
heartbeat_interval = "1s"
self_fence_timeout = "4s"
failure_timeout = "5s"
skew_budget = "500ms"
`

// machine is a Compute Engine instance with a worker.
type machine struct {
	id       string
	metadata *fakemetadata.Server
	worker   *exec.Cmd
	ended    chan error
}

// boot starts a machine with a worker until the test ends.
func (in *installation) boot(t *testing.T, n int) *machine {
	t.Helper()
	m := &machine{id: fmt.Sprint(5229353360185505340 + n), ended: make(chan error, 1)}
	var host string
	var end func()
	var err error
	if m.metadata, host, end, err = fakemetadata.Start(fakemetadata.Instance{ID: m.id, Project: "acme-ml",
		Zone: "us-central1-a", Number: "27", Name: fmt.Sprintf("rollout-default-%d", n)}, in.signer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	if err := in.work(m, host, "--engine", "mock"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	return m
}

// work starts the machine's worker with more arguments. Its metadata server is at the
// host.
func (in *installation) work(m *machine, host string, arguments ...string) error {
	m.worker = exec.Command(gpuworker, append([]string{"--cloud", "gcp", "--pool", "default"}, arguments...)...)
	m.worker.Env = append(in.environment(), "GCE_METADATA_HOST="+host)
	m.worker.Stdout, m.worker.Stderr = in.log, in.log
	if err := subprocess.Start(m.worker); err != nil {
		return err
	}
	go func() {
		m.ended <- m.worker.Wait()
		close(m.ended)
	}()
	return nil
}

// kill ends the machine's worker with SIGKILL.
func (m *machine) kill() {
	_ = m.worker.Process.Kill() // it may have ended
	<-m.ended
}

// preempt tells the machine, and the audit log, that the machine is taken back.
func (in *installation) preempt(t *testing.T, m *machine) {
	t.Helper()
	m.metadata.Preempt()
	entry := `{"protoPayload":{"methodName":"compute.instances.preempted",` +
		`"status":{"message":"Instance was preempted."}},"resource":{"type":"gce_instance",` +
		`"labels":{"instance_id":"` + m.id + `"}},"timestamp":"2026-11-29T12:00:00Z"}`
	in.publish(t, gcp.MachinesTopic, entry)
}

// waitForResults waits until the workers have stored so many results of shards.
func (in *installation) waitForResults(t *testing.T, n int) {
	t.Helper()
	in.eventually(t, fmt.Sprintf("%d objects of the run", n), func() bool {
		page, err := in.Ports.Blobs.List(t.Context(), "work/", "", 1000)
		return err == nil && len(page) >= n
	})
}

// Of three machines one is lost without a word, and one is preempted: its worker
// drains and ends in good order. The completions are a laptop's.
func TestLostAndPreemptedMachinesChangeNoByte(t *testing.T) {
	in := deploy(t, faults{}, quickHealth)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { in.tick(ctx) })
	lost, preempted := in.boot(t, 1), in.boot(t, 2)
	in.boot(t, 3)
	file := prompts(6000)
	id := upload(t, in.Ports, bucket, file)
	in.waitForResults(t, 40)
	if err := lost.worker.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	in.preempt(t, preempted)
	if _, err := in.Ports.Blobs.Stat(ctx, record.OutputKey(id, record.SummaryFile), ""); !fault.Is(err, fault.NotFound) {
		t.Fatalf("the run ended before its machines: %v", err)
	}
	select {
	case err := <-preempted.ended:
		if err != nil {
			t.Errorf("the preempted worker ended with %v\n%s", err, in.log)
		}
	case <-time.After(patience):
		t.Errorf("the preempted worker has not ended\n%s", in.log)
	}
	in.wantLaptops(t, id, file)
}
