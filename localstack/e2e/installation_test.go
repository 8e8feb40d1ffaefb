package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// defaultHealth are the product's own timings with more frequent heartbeats: a
// dead worker is found within about 5 s, and a worker on a busy machine still
// has the time to renew its heartbeat. A config with a [health] of its own
// replaces them.
const defaultHealth = `
[health]
heartbeat_interval = "100ms"
self_fence_timeout = "4s"
failure_timeout = "5s"
skew_budget = "50ms"
`

// patientHealth are for tests that count what healthy workers do: no worker
// fences itself, however busy the machine is.
const patientHealth = `
[health]
heartbeat_interval = "100ms"
self_fence_timeout = "4m"
failure_timeout = "5m"
skew_budget = "50ms"
`

// smallShards let a few hundred items keep several workers busy for a while.
const smallShards = `
[worker]
in_flight = 4
checkpoint = "100ms"
drain_budget = "2s"

[defaults]
schema_version = 1
kind = "batch"
[defaults.shard]
items = 8
[defaults.limits]
grace = "500ms"
`

// testInstallation is a folder with its `rollout up`.
type testInstallation struct {
	t       *testing.T
	dir     string
	engine  string
	workers int
	args    []string // further arguments of up
	up      *process
	url     string // of the API
	log     string // of the processes before this one
}

// install makes an installation with the config and starts it. With 0 workers,
// one worker runs in the process of up.
func install(t *testing.T, engine string, workers int, config string) *testInstallation {
	t.Helper()
	return installIn(t, t.TempDir(), engine, workers, config)
}

// installIn makes the installation in a folder.
func installIn(t *testing.T, dir, engine string, workers int, config string) *testInstallation {
	t.Helper()
	i := &testInstallation{t: t, dir: dir, engine: engine, workers: workers}
	i.configure(config)
	i.start()
	return i
}

// configure writes the installation's rollout.toml.
func (i *testInstallation) configure(config string) {
	i.t.Helper()
	write(i.t, filepath.Join(i.dir, "rollout.toml"), "schema_version = 1\n"+withHealth(config))
}

// withHealth puts defaultHealth before a config without a [health].
func withHealth(config string) string {
	if strings.Contains(config, "[health]") {
		return config
	}
	return defaultHealth + config
}

var isUp = regexp.MustCompile(`rollout is up: .*\(API at (http://[^),]+)`)

// start starts `rollout up` and waits until it is ready.
func (i *testInstallation) start() {
	i.t.Helper()
	if i.up != nil {
		i.log += i.up.stderrText()
	}
	args := append([]string{"up", "--dir", i.dir, "--engine", i.engine, "--workers", strconv.Itoa(i.workers),
		"--listen", "127.0.0.1:0"}, i.args...)
	i.up = launch(i.t, rollout, args...)
	eventually(i.t, "rollout is up", func() bool {
		m := isUp.FindStringSubmatch(i.up.stderrText())
		if m == nil {
			if i.up.ended() {
				i.t.Fatalf("rollout up ended: %s", i.up.stderrText())
			}
			return false
		}
		i.url = m[1]
		return true
	})
}

// logged reports whether the installation's processes wrote a line with all
// the texts.
func (i *testInstallation) logged(texts ...string) bool {
	i.t.Helper()
lines:
	for line := range strings.Lines(i.log + i.up.stderrText()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		return true
	}
	return false
}

// times is how often the installation's processes wrote the text.
func (i *testInstallation) times(text string) int {
	i.t.Helper()
	return strings.Count(i.log+i.up.stderrText(), text)
}

// request sends a request to the API and decodes the answer.
func (i *testInstallation) request(method, path string, into any) {
	i.t.Helper()
	code, body := request(i.t, method, i.url+path, "")
	if code >= 300 {
		i.t.Fatalf("%s %s: %d %s", method, path, code, body)
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		i.t.Fatal(err)
	}
}

// runs are all runs, the newest first.
func (i *testInstallation) runs() []status.Status {
	i.t.Helper()
	var out struct{ Runs []status.Status }
	i.request(http.MethodGet, "/v1/runs", &out)
	return out.Runs
}

// show returns a run's status; ok is false if the run does not exist (yet).
func (i *testInstallation) show(id identity.RunID) (s status.Status, ok bool) {
	i.t.Helper()
	code, body := get(i.t, i.url+"/v1/runs/"+string(id))
	if code == http.StatusNotFound {
		return s, false
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		i.t.Fatalf("status of %s: %d %s %v", id, code, body, err)
	}
	return s, true
}

// allWorkers are the workers that have a heartbeat, dead ones included.
func (i *testInstallation) allWorkers() []status.WorkerStatus {
	i.t.Helper()
	var out struct{ Workers []status.WorkerStatus }
	i.request(http.MethodGet, "/v1/workers", &out)
	return out.Workers
}

// aliveWorkers are the workers that are alive by their heartbeats.
func (i *testInstallation) aliveWorkers() []status.WorkerStatus {
	i.t.Helper()
	var alive []status.WorkerStatus
	for _, w := range i.allWorkers() {
		if w.Alive && w.State != "gone" {
			alive = append(alive, w)
		}
	}
	return alive
}

// submit puts a file into the bucket with `rollout submit` and returns the id
// of its run.
func (i *testInstallation) submit(file string) identity.RunID {
	i.t.Helper()
	p := do(i.t, 0, "submit", "--dir", i.dir, file)
	return identity.RunID(strings.TrimSpace(p.stdoutText()))
}

// control sends pause, resume or stop for a run.
func (i *testInstallation) control(what string, id identity.RunID) {
	i.t.Helper()
	var s status.Status
	i.request(http.MethodPost, "/v1/runs/"+string(id)+"/"+what, &s)
}

// await waits until the run is in one of the phases.
func (i *testInstallation) await(id identity.RunID, phases ...run.Phase) status.Status {
	i.t.Helper()
	var s status.Status
	eventually(i.t, "run "+string(id)+" is "+words(phases), func() bool {
		s, _ = i.show(id)
		for _, p := range phases {
			if s.Phase == p {
				return true
			}
		}
		if s.Phase.Ended() {
			i.t.Fatalf("run %s ended as %s (%s), want %s", id, s.Phase, s.Message, words(phases))
		}
		return false
	})
	return s
}

func words(phases []run.Phase) string {
	var out []string
	for _, p := range phases {
		out = append(out, string(p))
	}
	return strings.Join(out, " or ")
}

// awaitEnd waits until the run has ended in any phase.
func (i *testInstallation) awaitEnd(id identity.RunID) status.Status {
	i.t.Helper()
	var s status.Status
	eventually(i.t, "run "+string(id)+" ends", func() bool {
		s, _ = i.show(id)
		return s.Phase.Ended()
	})
	return s
}

// bucket returns the path of an object.
func (i *testInstallation) bucket(key string) string { return filepath.Join(i.dir, "bucket", key) }

// move puts a file into the bucket by a rename, as mv does.
func (i *testInstallation) move(name, content string) {
	i.t.Helper()
	from := write(i.t, filepath.Join(i.dir, "incoming"), content)
	to := i.bucket("prompts/" + name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		i.t.Fatal(err)
	}
}

// runsOf returns the runs of an uploaded file, the newest first.
func (i *testInstallation) runsOf(name string) []status.Status {
	i.t.Helper()
	var out []status.Status
	for _, s := range i.runs() {
		if len(s.Inputs) == 1 && s.Inputs[0] == "prompts/"+name {
			out = append(out, s)
		}
	}
	return out
}

// onlyRunOf waits until the run of an uploaded file has ended, and checks that
// the file has one run.
func (i *testInstallation) onlyRunOf(name string) status.Status {
	i.t.Helper()
	var all []status.Status
	eventually(i.t, "the run of "+name+" ends", func() bool {
		all = i.runsOf(name)
		return len(all) > 0 && all[0].Phase.Ended()
	})
	if len(all) != 1 {
		i.t.Fatalf("%s has %d runs, want 1", name, len(all))
	}
	return all[0]
}

// within returns the same installation for a subtest.
func (i *testInstallation) within(t *testing.T) *testInstallation {
	j := *i
	j.t = t
	return &j
}
