package e2e

import (
	"fmt"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/gcp"
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
	finished atomic.Bool // the worker has ended by itself, without an error
}

// work starts the machine's worker of the pool with more arguments. Its metadata server is at
// the host.
func (in *installation) work(m *machine, pool, host string, arguments ...string) error {
	m.worker = exec.Command(gpuworker, append([]string{"--cloud", "gcp", "--pool", pool}, arguments...)...)
	m.worker.Env = append(in.environment(), "GCE_METADATA_HOST="+host)
	m.worker.Stdout, m.worker.Stderr = in.log, in.log
	if err := subprocess.Start(m.worker); err != nil {
		return err
	}
	go func() {
		err := m.worker.Wait()
		m.finished.Store(err == nil)
		m.ended <- err
		close(m.ended)
	}()
	return nil
}

// kill ends the machine's worker with SIGKILL.
func (m *machine) kill() {
	_ = m.worker.Process.Kill() // it may have ended
	<-m.ended
}

// shutdownTime is how long a machine that is deleted may take to end.
const shutdownTime = time.Minute

// shutdown ends the machine's worker with SIGTERM, and after shutdownTime with SIGKILL.
func (m *machine) shutdown() {
	_ = m.worker.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-m.ended:
	case <-time.After(shutdownTime):
		m.kill()
	}
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
	scenarios.Eventually(t, fmt.Sprintf("%d objects of the run", n), func() bool {
		page, err := in.Ports.Blobs.List(t.Context(), "work/", "", 1000)
		return err == nil && len(page) >= n
	})
}
