package scenarios

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"testing"

	"rollout/functions/status"
	"rollout/localstack/fakellm"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Fixture is an installation under test with its inference server.
type Fixture struct {
	Installation
	t      *testing.T
	cloud  Cloud
	server *Server // nil: the mock engine
}

// NewFixture returns the fixture of an installation whose machines ask the server, or have
// the mock engine if that is nil.
func NewFixture(t *testing.T, c Cloud, server *Server, in Installation) *Fixture {
	return &Fixture{Installation: in, t: t, cloud: c, server: server}
}

// engine returns the URL of the engine.
func (d *Fixture) engine() string {
	if d.server == nil {
		return engineAt("")
	}
	return engineAt(d.server.URL)
}

// deploy starts a server and an installation whose machines ask it.
func deploy(t *testing.T, c Cloud, model fakellm.Config, s Settings) *Fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: short tests do not build the programs")
	}
	server := Serve(t, model)
	s.Server = server.URL
	return NewFixture(t, c, server, c.Deploy(t, s))
}

// Put uploads an object and returns the id of its run.
func (d *Fixture) Put(key, content string) identity.RunID {
	d.t.Helper()
	return identity.UploadRun(d.Stores().Deployment.Bucket, key, d.Upload(key, content))
}

// Local completes the run of an object on a laptop, with the same engine.
func (d *Fixture) Local(key, content string, config ...string) Outcome {
	d.t.Helper()
	return Local(d.t, d.cloud.Program, d.engine(), key, content, config...)
}

// Find reads an object; ok is false if it does not exist.
func (d *Fixture) Find(key string) (text string, ok bool) {
	d.t.Helper()
	return find(d.t, d.Stores().Ports.Blobs, key)
}

// find reads an object; ok is false if it does not exist.
func find(t *testing.T, blobs blob.Store, key string) (text string, ok bool) {
	t.Helper()
	r, _, err := blobs.Get(t.Context(), key, blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // read only
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content), true
}

// HasEnded reports whether a run has ended, also by its state: that follows its files.
func (d *Fixture) HasEnded(id identity.RunID) bool {
	d.t.Helper()
	return d.state(id).Phase.Ended()
}

// state returns the state of a run; it is zero before the run is planned.
func (d *Fixture) state(id identity.RunID) (s run.State) {
	d.t.Helper()
	if _, _, err := host.Load(d.t.Context(), d.Stores().Ports.Docs, record.CoordinatorKey(id), &s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// AwaitEnd waits until a run has ended and returns its files.
func (d *Fixture) AwaitEnd(id identity.RunID) Outcome {
	d.t.Helper()
	Eventually(d.t, fmt.Sprintf("the run %s ends", id), func() bool { return d.HasEnded(id) })
	return ReadOutcome(d.t, func(name string) string {
		content, ok := d.Find(record.OutputKey(id, name))
		if !ok {
			d.t.Errorf("the run %s has no %s", id, name)
		}
		return content
	})
}

// awaitRequests waits until the server has received that many requests more than from, or
// the run has ended.
func (d *Fixture) awaitRequests(id identity.RunID, from, more int) {
	d.t.Helper()
	Eventually(d.t, fmt.Sprintf("%d requests of the run %s", more, id),
		func() bool { return d.server.Requests() >= from+more || d.HasEnded(id) })
}

// Command runs a user's command and returns its output.
func (d *Fixture) Command(args ...string) (string, error) {
	args = append(args, "--cloud", d.cloud.Provider, "--dir", d.Folder())
	return Rollout(d.t, d.cloud.Program, d.Environment(), args...)
}

// Do runs a command that must succeed and returns its output.
func (d *Fixture) Do(args ...string) string {
	d.t.Helper()
	out, err := d.Command(args...)
	if err != nil {
		d.t.Fatalf("rollout %v: %v\n%s", args, err, out)
	}
	return out
}

// Control runs pause, resume or stop for a run, which may end meanwhile. It reports whether
// the command succeeded.
func (d *Fixture) Control(verb string, id identity.RunID) bool {
	d.t.Helper()
	out, err := d.Command(verb, string(id))
	if err != nil && !d.ends(id) {
		d.t.Errorf("%s: %v: %s", verb, err, out)
	}
	return err == nil
}

// ends reports whether a run is ending, or has ended: then it takes no verb.
func (d *Fixture) ends(id identity.RunID) bool {
	d.t.Helper()
	switch at := d.Phase(id); at {
	case run.Ending, run.Finalizing:
		return true
	default:
		return at.Ended()
	}
}

// get decodes the API's answer to a request.
func (d *Fixture) get(path string, into any) {
	d.t.Helper()
	answer := d.Get(path)
	if err := json.Unmarshal(answer, into); err != nil {
		d.t.Fatalf("%s: %v: %s", path, err, answer)
	}
}

// Phase is the run's phase, from the API.
func (d *Fixture) Phase(id identity.RunID) run.Phase {
	d.t.Helper()
	var s status.Status
	d.get("/v1/runs/"+string(id), &s)
	return s.Phase
}

var anyRunID = regexp.MustCompile("[0-9A-HJKMNP-TV-Z]{26}")

// runID is the id of a run in the output of a command.
func runID(t *testing.T, output string) identity.RunID {
	t.Helper()
	id := anyRunID.FindString(output)
	if id == "" {
		t.Fatalf("the output names no run: %s", output)
	}
	return identity.RunID(id)
}
