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

// quickHealth are timings that find a dead worker within about a second, and
// still leave a worker on a crowded machine the time to say that it lives.
const quickHealth = `
[health]
heartbeat_interval = "100ms"
self_fence_timeout = "700ms"
failure_timeout = "900ms"
skew_budget = "50ms"
`

// smallBites let a few hundred items keep several workers busy for a while.
const smallBites = `
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
	args    []string // more of up's
	up      *process
	url     string // of the API
	log     string // of the processes before this one
}

// install makes an installation whose config is quickHealth and the given
// rest, and starts it. 0 workers is one in the same process.
func install(t *testing.T, engine string, workers int, config string) *testInstallation {
	t.Helper()
	return installIn(t, t.TempDir(), engine, workers, config)
}

// installIn makes one in the folder.
func installIn(t *testing.T, dir, engine string, workers int, config string) *testInstallation {
	t.Helper()
	i := &testInstallation{t: t, dir: dir, engine: engine, workers: workers}
	write(t, filepath.Join(i.dir, "rollout.toml"), "schema_version = 1\n"+quickHealth+config)
	i.start()
	return i
}

var isUp = regexp.MustCompile(`rollout is up: .*\(API at (http://[^)]+)\)`)

// start starts `rollout up` and waits until it is.
func (i *testInstallation) start() {
	i.t.Helper()
	if i.up != nil {
		i.log += i.up.stderrText()
	}
	i.up = launch(i.t, rollout, append([]string{"up", "--dir", i.dir, "--engine", i.engine, "--workers", strconv.Itoa(i.workers), "--listen", "127.0.0.1:0"}, i.args...)...)
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

// ask asks the API and decodes its answer.
func (i *testInstallation) ask(method, path string, into any) {
	i.t.Helper()
	code, body := ask(i.t, method, i.url+path, "")
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
	i.ask(http.MethodGet, "/v1/runs", &out)
	return out.Runs
}

// show is one run's status; ok is false if there is no such run (yet).
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

// everyWorker is every worker that there ever was.
func (i *testInstallation) everyWorker() []status.WorkerStatus {
	i.t.Helper()
	var out struct{ Workers []status.WorkerStatus }
	i.ask(http.MethodGet, "/v1/workers", &out)
	return out.Workers
}

// living are the workers that are alive, by their heartbeats.
func (i *testInstallation) living() []status.WorkerStatus {
	i.t.Helper()
	var living []status.WorkerStatus
	for _, w := range i.everyWorker() {
		if w.Alive && w.State != "gone" {
			living = append(living, w)
		}
	}
	return living
}

// submit puts a file into the bucket as `rollout submit` does, and returns the
// run that it is.
func (i *testInstallation) submit(file string) identity.RunID {
	i.t.Helper()
	p := do(i.t, 0, "submit", "--dir", i.dir, file)
	return identity.RunID(strings.TrimSpace(p.stdoutText()))
}

// steer is pause, resume or stop.
func (i *testInstallation) steer(what string, id identity.RunID) {
	i.t.Helper()
	var s status.Status
	i.ask(http.MethodPost, "/v1/runs/"+string(id)+"/"+what, &s)
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
			i.t.Fatalf("run %s ended as %s (%s), not as %s", id, s.Phase, s.Message, words(phases))
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

// ends waits for the run's end, however it is.
func (i *testInstallation) ends(id identity.RunID) status.Status {
	i.t.Helper()
	var s status.Status
	eventually(i.t, "run "+string(id)+" ends", func() bool {
		s, _ = i.show(id)
		return s.Phase.Ended()
	})
	return s
}

// bucket is a path in the bucket.
func (i *testInstallation) bucket(key string) string { return filepath.Join(i.dir, "bucket", key) }

// move puts a file into the bucket by a rename, as mv does.
func (i *testInstallation) move(name, content string) {
	i.t.Helper()
	from := write(i.t, filepath.Join(i.dir, "on its way"), content)
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

// onlyRunOf waits for the one run of an uploaded file to end.
func (i *testInstallation) onlyRunOf(name string) status.Status {
	i.t.Helper()
	var all []status.Status
	eventually(i.t, "the run of "+name+" ends", func() bool {
		all = i.runsOf(name)
		return len(all) > 0 && all[0].Phase.Ended()
	})
	if len(all) != 1 {
		i.t.Fatalf("%s is %d runs", name, len(all))
	}
	return all[0]
}
