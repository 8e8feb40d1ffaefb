package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// request sends a request to the API, as its function URL does for a caller whose
// signature is valid, and decodes the answer.
func (a *awsInstallation) request(method, path string, into any) {
	a.t.Helper()
	event := fmt.Sprintf(`{"version":"2.0","rawPath":%q,"rawQueryString":"",`+
		`"headers":{"host":"x.lambda-url.us-east-1.on.aws"},"isBase64Encoded":false,
		"requestContext":{"domainName":"x.lambda-url.us-east-1.on.aws","authorizer":{"iam":{"accountId":"000000000000"}},
		"http":{"method":%q,"path":%q,"protocol":"HTTP/1.1","sourceIp":"198.51.100.7"}}}`, path, method, path)
	reply, err := a.Invoke("api", []byte(event))
	// A streamed answer starts with its status and eight zero bytes.
	head, body, streamed := bytes.Cut(reply.Body, make([]byte, 8))
	var status struct{ StatusCode int }
	if err != nil || reply.Failed || !streamed || json.Unmarshal(head, &status) != nil || status.StatusCode >= 300 {
		a.t.Fatalf("%s %s: %v, %s", method, path, err, reply.Body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		a.t.Fatalf("%s %s: %v: %s", method, path, err, body)
	}
}

// phase is the run's phase, from the API.
func (a *awsInstallation) phase(id identity.RunID) run.Phase {
	a.t.Helper()
	var s status.Status
	a.request("GET", "/v1/runs/"+string(id), &s)
	return s.Phase
}

// control runs pause, resume or stop for a run.
func (a *awsInstallation) control(verb string, id identity.RunID) (string, error) {
	return rollout(a.t, a.environment(), verb, string(id), "--cloud", "aws", "--dir", a.dir)
}

// The API reports the same as the command line.
func TestCommandLineWorksOnTheStack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 1\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 1); err != nil {
		t.Fatal(err)
	}
	content := simplePrompts(40) // submit --wait fails if items fail
	file := write(t, t.TempDir(), "a b+c.jsonl", content)
	in := []string{"--cloud", "aws", "--dir", a.dir}
	output := do(t, a.environment(), append([]string{"submit", file, "--wait"}, in...)...)
	var all struct{ Runs []status.Status }
	a.request("GET", "/v1/runs", &all)
	if len(all.Runs) != 1 || !all.Runs[0].Phase.Ended() {
		t.Fatalf("the API has the runs %+v; submit wrote %s", all.Runs, output)
	}
	id := all.Runs[0].Run
	want := local(t, s, all.Runs[0].Inputs[0], content)
	wantSame(t, a.awaitEnd(id), want)
	out := t.TempDir() + "/completions.jsonl"
	do(t, a.environment(), append([]string{"results", string(id), "--output", out}, in...)...)
	if got := generatedAt.ReplaceAllString(read(t, out), `"generated_at":""`); got != want.completions {
		t.Errorf("results wrote %d bytes, want %d", len(got), len(want.completions))
	}
}

// A stopped run sends no more requests. Each item is in one of the files, and the
// answers are those of a whole run.
func TestStoppedRunKeepsItsAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, "--latency", "50ms")
	a := open(t, s, "max_machines = 2\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 2); err != nil {
		t.Fatal(err)
	}
	const key = "prompts/stopped.jsonl"
	content := mixedPrompts(640)
	want := local(t, s, key, content)
	from := s.requests()
	id := a.put(key, content)
	eventually(t, "the run is under way", func() bool { return s.requests() > from+100 })
	if output, err := a.control("stop", id); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	got := a.awaitEnd(id)
	if got.summary.Phase != string(run.Stopped) || got.summary.Completed == 0 ||
		got.summary.Completed == want.summary.Completed || got.summary.Items != want.summary.Items {
		t.Errorf("the summary is %+v, want stopped with some answers", got.summary)
	}
	rows := strings.SplitAfter(want.completions, "\n")
	for row := range strings.Lines(got.completions) {
		at := slices.Index(rows, row)
		if at < 0 {
			t.Fatalf("an answer is not in the whole run, or is out of order: %.300s", row)
		}
		rows = rows[at+1:]
	}
}
