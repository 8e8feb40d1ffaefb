package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	workerprocess "rollout/gpuworker/process"
	"rollout/localstack/scenarios"
	"rollout/shared/ca"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/embedded/machine"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/remote"
	"rollout/shared/retry"
)

// joinedInstallation is an installation whose workers join over the network, each through a
// network of its own that a test disturbs.
type joinedInstallation struct {
	*testInstallation
	address string // at which workers join
	token   string
	workers []*joinedWorker
}

// joinedWorker is a worker process that joins.
type joinedWorker struct {
	*process
	network *network
	folder  string // of its certificate
}

var joinAddress = regexp.MustCompile(`workers join at ([0-9.:]+)`)

func newJoinedInstallation(t *testing.T, engine string, workers int) *joinedInstallation {
	t.Helper()
	i := &testInstallation{t: t, dir: t.TempDir(), engine: engine,
		args: []string{"--no-workers", "--model", "fake", "--join-listen", "127.0.0.1:0"}}
	i.configure(smallShards)
	i.start()
	m := joinAddress.FindStringSubmatch(i.up.stderrText())
	if m == nil {
		t.Fatalf("no address to join: %s", i.up.stderrText())
	}
	j := &joinedInstallation{testInstallation: i, address: m[1]}
	j.token = strings.TrimSpace(read(t, do(t, 0, "join-token", "--dir", i.dir).stdout))
	for range workers {
		w := &joinedWorker{network: newNetwork(t, j.address), folder: t.TempDir()}
		j.workers = append(j.workers, w)
		j.startWorker(w)
	}
	return j
}

// startWorker starts a worker's process. At a later start it has its certificate.
func (j *joinedInstallation) startWorker(w *joinedWorker) {
	j.t.Helper()
	w.process = spawn(j.t, "", "/usr/bin/env", "ROLLOUT_JOIN_TOKEN="+j.token, filepath.Join(binaries, gpuworker),
		"--join", w.network.address, "--join-dir", w.folder, "--engine", j.engine)
}

// network stands between a worker and its installation, as a network that misbehaves.
type network struct {
	address string

	mu      sync.Mutex
	mode    disturbance
	changed chan struct{} // closed when the mode changes
	conns   map[net.Conn]bool
}

// disturbance is how a network misbehaves.
type disturbance string

const (
	undisturbedNetwork disturbance = ""
	partitioned        disturbance = "partitioned" // no byte passes, and nobody is told
	slow               disturbance = "slow"        // bytes pass late
	garbled            disturbance = "garbled"     // bytes pass changed and in another order
	reset              disturbance = "reset"       // connections end at once
)

func newNetwork(t *testing.T, target string) *network {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{address: l.Addr().String(), changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { n.serve(c, target) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.disturb(reset)
		all.Wait()
	})
	return n
}

// disturb lets the network misbehave so from now on.
func (n *network) disturb(how disturbance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mode = how
	close(n.changed)
	n.changed = make(chan struct{})
	if how == reset {
		for c := range n.conns {
			_ = c.Close()
		}
	}
}

func (n *network) now() (disturbance, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mode, n.changed
}

func (n *network) serve(client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	n.mu.Lock()
	if n.mode == reset {
		_, _ = client.Close(), server.Close()
	}
	n.conns[client], n.conns[server] = true, true
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { n.pass(server, client) })
	both.Go(func() { n.pass(client, server) })
	both.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, client)
	delete(n.conns, server)
}

// pass copies one direction, as the mode says.
func (n *network) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 16<<10)
	for {
		k, err := from.Read(buffer)
		if k > 0 && !n.deliver(to, buffer[:k]) || err != nil {
			return
		}
	}
}

func (n *network) deliver(to io.Writer, b []byte) bool {
	mode, changed := n.now()
	for mode == partitioned {
		<-changed
		mode, changed = n.now()
	}
	switch mode {
	case slow:
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		}
	case garbled:
		if len(b) > 1 {
			b[0], b[len(b)-1] = b[len(b)-1]^0x55, b[0]
		}
	case reset:
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

// Workers that join are killed, stopped, and cut off from their installation by networks that
// lose, delay, change and reorder bytes. The files are those of an undisturbed run (I1 to I5).
func TestDisturbedWorkersThatJoinDoNotChangeTheResult(t *testing.T) {
	t.Parallel()
	const items, rounds = 200, 5
	file := promptsFile(t, scenarios.MixedPrompts(items))
	want := undisturbed(t, file)
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 77))
			j := newJoinedInstallation(t, serveSlowly(t, 20*time.Millisecond).url, 2)
			for range rounds {
				id := j.submit(file)
				eventually(t, "a part of the run is answered", func() bool {
					s, ok := j.show(id)
					return ok && (s.Phase.Ended() || s.Items.Done > 20)
				})
				j.disturb(rng)
				j.awaitEnd(id)
				wantSame(t, j.outcome(id), want)
			}
		})
	}
}

// disturb disturbs one of the workers, and the other one sometimes, too, until their installation
// has noticed, or for a moment.
func (j *joinedInstallation) disturb(rng *rand.Rand) {
	j.t.Helper()
	w := j.workers[rng.IntN(len(j.workers))]
	switch rng.IntN(6) {
	case 0:
		w.kill()
		j.startWorker(w)
	case 1: // for longer than it takes to be taken for dead
		w.network.disturb(partitioned)
		j.awaitFewerWorkers()
	case 2:
		w.network.disturb(garbled)
		j.awaitProgressOrFewerWorkers()
	case 3:
		for _, w := range j.workers {
			w.network.disturb(reset)
			w.network.disturb(undisturbedNetwork)
		}
	case 4:
		w.network.disturb(slow)
		j.awaitProgressOrFewerWorkers()
	case 5:
		w.signal(syscall.SIGSTOP)
		j.awaitFewerWorkers()
		w.signal(syscall.SIGCONT)
	}
	w.network.disturb(undisturbedNetwork)
	if w.ended() { // it has fenced itself for too long
		j.startWorker(w)
	}
}

// awaitFewerWorkers waits until a worker is taken for dead, or all runs have ended.
func (j *joinedInstallation) awaitFewerWorkers() {
	j.t.Helper()
	eventually(j.t, "the worker is taken for dead", func() bool {
		return len(j.aliveWorkers()) < len(j.workers) || j.allEnded()
	})
}

// awaitProgressOrFewerWorkers waits until more items are answered, or a worker is taken for dead.
func (j *joinedInstallation) awaitProgressOrFewerWorkers() {
	j.t.Helper()
	before := j.answered()
	eventually(j.t, "the run goes on", func() bool {
		return j.answered() > before+10 || len(j.aliveWorkers()) < len(j.workers) || j.allEnded()
	})
}

func (j *joinedInstallation) allEnded() bool {
	j.t.Helper()
	for _, s := range j.runs() {
		if !s.Phase.Ended() {
			return false
		}
	}
	return true
}

func (j *joinedInstallation) answered() (n int) {
	j.t.Helper()
	for _, s := range j.runs() {
		n += int(s.Items.Done)
	}
	return n
}

// An installation that is killed comes back to the workers that have joined it: each goes on with the
// certificate that it has, and the files are those of an undisturbed run.
func TestKilledInstallationKeepsItsJoinedWorkers(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(200))
	want := undisturbed(t, file)
	j := newJoinedInstallation(t, serveSlowly(t, 20*time.Millisecond).url, 2)
	j.args = []string{"--no-workers", "--model", "fake", "--join-listen", j.address}
	id := j.submit(file)
	for _, answered := range []int{20, 80, 140} {
		eventually(t, "a part of the run is answered", func() bool {
			s, ok := j.show(id)
			return ok && (s.Phase.Ended() || int(s.Items.Done) > answered)
		})
		j.up.kill()
		j.start()
		for _, w := range j.workers {
			if w.ended() { // it was without an installation for longer than a worker may write
				w.wantExit(1)
				j.startWorker(w)
			}
		}
	}
	j.awaitEnd(id)
	wantSame(t, j.outcome(id), want)
	if n := len(strings.Fields(read(t, do(t, 0, "joined", "--dir", j.dir).stdout))); n != 3*5 {
		t.Errorf("`rollout joined` lists %d fields, want 5 titles and 2 members: %s", n,
			read(t, do(t, 0, "joined", "--dir", j.dir).stdout))
	}
}

// A worker that is revoked ends with one clear line, its work goes on elsewhere, and it can't come
// back with what it has.
func TestRevokedWorkerEnds(t *testing.T) {
	t.Parallel()
	j := newJoinedInstallation(t, serveSlowly(t, 20*time.Millisecond).url, 2)
	eventually(t, "both workers are there", func() bool { return len(j.aliveWorkers()) == 2 })
	id := j.submit(promptsFile(t, scenarios.MixedPrompts(160)))
	eventually(t, "a part of the run is answered", func() bool { return j.answered() > 10 })
	members := strings.Fields(read(t, do(t, 0, "joined", "--dir", j.dir).stdout))
	do(t, 0, "joined", "revoke", members[5], "--dir", j.dir) // behind the five titles
	var revoked, other *joinedWorker
	eventually(t, "a worker ends", func() bool {
		for k, w := range j.workers {
			if w.ended() {
				revoked, other = w, j.workers[1-k]
				return true
			}
		}
		return false
	})
	revoked.wantExit(4)
	revoked.wantStderr("gpuworker: the worker's certificate is revoked", "rollout join-token")
	if n := j.times("a worker is refused"); n != 1 {
		t.Errorf("`rollout up` writes %d lines about it, want one", n)
	}
	j.await(id, run.CompletedWithErrors)
	if other.ended() {
		t.Error("the other worker has ended, too")
	}
	j.startWorker(revoked)
	<-revoked.done
	revoked.wantExit(4)
	revoked.wantStderr("the join token is not valid")
}

// A worker of another installation's authority is refused with one line, and asks for nothing else.
func TestWorkerOfAnotherAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	engine := serve(t).url
	j, strange := newJoinedInstallation(t, engine, 0), newJoinedInstallation(t, engine, 0)
	j.token = strange.token
	w := &joinedWorker{network: newNetwork(t, j.address), folder: t.TempDir()}
	j.startWorker(w)
	<-w.done
	w.wantExit(1) // it can't know whether the right one comes back
	w.wantStderr("the server there is not the one that the token, or the certificate, is of")
}

// At an address that other machines can reach, the API speaks TLS with a certificate of the
// installation's own authority.
func TestAPIForOtherMachinesSpeaksTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := spawn(t, "", "/usr/bin/env", "ROLLOUT_SECRET_API_TOKEN=s3cr3t", filepath.Join(binaries, rollout), "up",
		"--dir", dir,
		"--engine", "mock", "--listen", "0.0.0.0:0")
	port := regexp.MustCompile(`API at https://\S*:(\d+)`)
	eventually(t, "the API speaks TLS", func() bool { return port.MatchString(up.stderrText()) })
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(read(t, filepath.Join(dir, "tls", "ca.pem")))) {
		t.Fatal("tls/ca.pem has no certificate")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	url := "https://localhost:" + port.FindStringSubmatch(up.stderrText())[1] + "/v1/runs"
	for token, want := range map[string]int{"s3cr3t": http.StatusOK, "other": http.StatusUnauthorized} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // only its status counts
		if answer.StatusCode != want {
			t.Errorf("with the token %q: %s, want %d", token, answer.Status, want)
		}
	}
}

// A worker whose clock is wrong joins, says so, and takes no work; the others answer everything.
func TestJoinedWorkerWithAWrongClockTakesNoWork(t *testing.T) {
	t.Parallel()
	j := newJoinedInstallation(t, serve(t).url, 1)
	token, err := ca.ParseToken(j.token)
	if err != nil {
		t.Fatal(err)
	}
	c, closeClient, err := remote.Join(t.Context(),
		remote.Options{Address: j.address, Dir: t.TempDir(), Token: token, Clock: clock.System{},
			Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	told, err := c.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := config.ParseDeployment("rollout.toml", told.Config)
	if err != nil {
		t.Fatal(err)
	}
	d.Engine = d.Engine.WithURLs([]string{config.EngineMock})
	var log safeBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if d, err = workerprocess.ResolveEngine(t.Context(), d, "", c.Secrets(), logger); err != nil {
		t.Fatal(err)
	}
	shutdown, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := workerprocess.Run(t.Context(), workerprocess.Options{
			Ports: host.Ports{Blobs: c.Objects(), Docs: document.Reliable(c.Documents(), retry.Policy{}),
				Queues: queue.Reliable(c.Queues(), retry.Policy{}), Clock: clock.Skewed{Offset: time.Minute}, Log: logger,
				Source: "worker"},
			Deployment: d, Pool: d.InferPools()[0].Name, Secrets: c.Secrets(), Shutdown: shutdown,
			Machine: machine.New(machine.Options{Logger: logger}), Scratch: t.TempDir()})
		ended <- err
	}()
	eventually(t, "the worker says that its clock is wrong", func() bool {
		return strings.Contains(log.String(), "ahead of the store's")
	})
	id := j.submit(promptsFile(t, scenarios.MixedPrompts(80)))
	j.awaitEnd(id)
	shutdown <- "the test is over"
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := j.outcome(id).Completions; strings.Contains(text, "mock") {
		t.Errorf("the worker with the wrong clock has answered:\n%.300s", text)
	}
}

// safeBuffer collects text. It is safe for concurrent use.
type safeBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
