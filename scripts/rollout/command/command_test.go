package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/status"
	"rollout/scripts/rollout/command"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/record"
)

const (
	runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	runB = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF")
	runC = identity.RunID("0ZJD2ZQ4T5W0M1X9YB7R3K8CVG")
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// result is the exit code and the output of a command line.
type result struct {
	code     int
	out, err string
}

// rollout runs a command line at 13:00.
func rollout(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	code := command.Main(ctx, args,
		command.Env{Out: &out, Err: &errs, Clock: clock.Fixed(noon.Add(time.Hour)), Getenv: noEnv})
	return result{code, out.String(), errs.String()}
}

func noEnv(string) string { return "" }

// fixture is an installation in a temporary folder, whose stores tests read and write directly.
type fixture struct {
	*installation.Local
	t   *testing.T
	dir string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	return newFixtureIn(t, t.TempDir())
}

func newFixtureIn(t *testing.T, dir string) fixture {
	t.Helper()
	l, closeAll, err := installation.OpenLocal(t.Context(), dir, installation.LocalOptions{Create: true, Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
	return fixture{l, t, dir}
}

// rollout runs a command line for this installation at 13:00.
func (f fixture) rollout(args ...string) result {
	f.t.Helper()
	return rollout(f.t.Context(), append(slices.Clone(args), "--dir", f.dir)...)
}

func (f fixture) save(key string, v any) {
	f.t.Helper()
	var raw json.RawMessage
	rev, _, err := host.Load(f.t.Context(), f.Ports.Docs, key, &raw)
	if err == nil {
		_, err = host.Save(f.t.Context(), f.Ports.Docs, key, v, rev)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f fixture) put(key, text string) {
	f.t.Helper()
	if _, err := f.Bucket.Put(f.t.Context(), key, strings.NewReader(text), blob.PutOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// file writes a file outside the installation and returns its path.
func (f fixture) file(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// addRun stores a run of 100 items with that age at 13:00, partly or completely processed as its phase implies.
func (f fixture) addRun(id identity.RunID, name string, age time.Duration, p run.Phase) {
	f.t.Helper()
	created := noon.Add(time.Hour - age)
	st := run.New(id)
	st.Phase, st.Items, st.Shards, st.Complete, st.NextShard, st.StartedAt, st.SavedAt = p, 100, 4, true, 4, created,
		noon.Add(time.Hour)
	st.Done = run.CommitLog{Set: interval.Of(interval.Range{Lo: 0, Hi: 2})}
	st.Counts = shard.Counts{OK: 48, Failed: 2, ByClass: map[string]int{"too_long": 2}, PromptTokens: 100,
		CompletionTokens: 200}
	if p.Ended() {
		st.Counts.OK, st.EndedAt = 98, created.Add(10*time.Second)
	}
	f.save(record.CoordinatorKey(id), st)
	// Last, so that a command that looks meanwhile finds no run or all of it.
	f.save(record.ManifestKey(id), record.Manifest{
		Schema: record.Schema, Run: id, Name: name, Kind: "batch", CreatedAt: created, ModelURI: "mock", Pool: "default",
		Inputs: []record.Input{{Key: "prompts/" + name + ".jsonl", Version: "v", Size: 1}},
	})
}

func check(t *testing.T, got result, code int, out string, errs ...string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d; stderr: %s", got.code, code, got.err)
	}
	if d := cmp.Diff(out, got.out); d != "" {
		t.Errorf("stdout (-want +got):\n%s", d)
	}
	for _, want := range errs {
		if !strings.Contains(got.err, want) {
			t.Errorf("stderr lacks %q:\n%s", want, got.err)
		}
	}
	if len(errs) == 0 && got.err != "" {
		t.Errorf("stderr: %s", got.err)
	}
	if code != 0 && strings.Count(got.err, "rollout: ") != 1 {
		t.Errorf("the error is not written exactly once:\n%s", got.err)
	}
}

func TestInvalidCommandLinesExitWith2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nope"}, "rollout: unknown command \"nope\" (see `rollout --help`)\n"},
		{[]string{"statu"}, "rollout: unknown command \"statu\"; did you mean \"status\"? (see `rollout --help`)\n"},
		{[]string{"statsu"}, "rollout: unknown command \"statsu\"; did you mean \"status\"? (see `rollout --help`)\n"},
		{[]string{"ls"}, "rollout: unknown command \"ls\"; did you mean \"status\"? (see `rollout --help`)\n"},
		{[]string{"cancel", "x"}, "rollout: unknown command \"cancel\"; did you mean \"stop\"? (see `rollout --help`)\n"},
		{[]string{"submit", "--limt", "3"},
			"rollout: unknown flag: --limt; did you mean --limit? (see `rollout submit --help`)\n"},
		{[]string{"config", "again"}, "rollout: unknown command \"again\" (see `rollout config --help`)\n"},
		{[]string{"statu", "nightly", "--dir", "x"},
			"rollout: unknown command \"statu\"; did you mean \"status\"? (see `rollout --help`)\n"},
		{[]string{"--nope", "statu"}, "rollout: unknown flag: --nope (see `rollout --help`)\n"},
		{[]string{"status", "--shape"}, "rollout: unknown flag: --shape (see `rollout status --help`)\n"},
		{[]string{"status", "a", "b"}, "rollout: unexpected argument \"b\" (see `rollout status --help`)\n"},
		{[]string{"status"}, "rollout: --dir is missing: name the folder that `rollout up` runs in, " +
			"also in ROLLOUT_DIR, or a cloud with --cloud (see `rollout status --help`)\n"},
		{[]string{"pause", "--dir", "d"}, "rollout: RUN is missing (see `rollout pause --help`)\n"},
		{[]string{"submit", "--dir", "d"}, "rollout: FILE is missing (see `rollout submit --help`)\n"},
		{[]string{"submit", "x.jsonl", "--dir", "d", "--json"},
			"rollout: --json prints what --dry-run, --preflight, --sample or --limit finds: use it with one of them " +
				"(see `rollout submit --help`)\n"},
		{[]string{"submit", "x.jsonl", "--dir", "d", "--dry-run", "--wait"},
			"rollout: --dry-run starts no run that --wait could follow (see `rollout submit --help`)\n"},
		{[]string{"infer", "batch", "--config", "c", "--json"},
			"rollout: --json prints what --dry-run finds: use both (see `rollout infer batch --help`)\n"},
		{[]string{"version", "x"}, "rollout: unexpected argument \"x\" (see `rollout version --help`)\n"},
		{[]string{"status", "--dir", "d", "--log-level", "chatty"},
			"rollout: --log-level: unknown log level \"chatty\" (use debug, info, warn or error)\n"},
	} {
		check(t, rollout(t.Context(), c.args...), 2, "", c.want)
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	if r := rollout(t.Context()); r.code != 0 || !strings.Contains(r.out, "Answer prompts:") {
		t.Errorf("%+v", r)
	}
	if r := rollout(t.Context(), "version"); r.code != 0 || !strings.HasPrefix(r.out, "rollout ") {
		t.Errorf("%+v", r)
	}
}

func TestVersionNamesTheCommit(t *testing.T) { // not parallel: it sets the variables that the linker sets
	command.Commit, command.Date = "259f741aa0c1d2e3f4", "2026-03-01T12:00:00Z"
	defer func() { command.Commit, command.Date = "", "" }()
	r := rollout(t.Context(), "version")
	if r.code != 0 || !strings.Contains(r.out, "(commit 259f741aa0c1") || !strings.Contains(r.out, command.Date) {
		t.Errorf("%+v", r)
	}
	var b struct{ Version, Commit, Date string }
	r = rollout(t.Context(), "version", "--json")
	if err := json.Unmarshal([]byte(r.out), &b); err != nil || b.Commit != command.Commit || b.Date != command.Date {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCommandsNameAFolderWithoutState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := fmt.Sprintf("rollout: there is no rollout state in %s "+
		"(start `rollout up --dir %s` first, or name the folder that it runs in)\n", dir, dir)
	for _, args := range [][]string{{"status"}, {"pause", "x"}, {"stop", "x"}, {"clean"}} {
		check(t, rollout(t.Context(), append(args, "--dir", dir)...), 1, "", want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestInvalidDeploymentFileIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rollout.toml"), []byte("schema_version = 1\nbuckett = \"x\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	check(t, rollout(t.Context(), "status", "--dir", dir), 2, "", "rollout.toml:2: buckett")
}

func TestStatusListsNewestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check(t, f.rollout("status"), 0, "no runs yet: start one with `rollout submit FILE --dir "+f.dir+"`\n")
	f.addRun(runA, "nightly", 100*time.Second, run.Running)
	f.addRun(runB, "weekly", 26*time.Hour, run.CompletedWithErrors)
	check(t, f.rollout("status"), 0,
		`RUN                         NAME     PHASE                  ITEMS  DONE  FAILED  RATE    ETA  AGE
01JD2ZQ4T5W0M1X9YB7R3K8CVE  nightly  running                100    50%   2       -       -    1m40s
01JD2ZQ4T5W0M1X9YB7R3K8CVF  weekly   completed with errors  100    100%  2       10.0/s  -    1d02h

nightly: no worker of pool default is alive (start `+"`rollout up --dir "+f.dir+"`)\n")
}

func TestStatusShowsWorkersAndQueues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", 100*time.Second, run.Running)
	at := noon.Add(time.Hour)
	f.save(record.HeartbeatKey("w-1"), health.Heartbeat{Schema: 1, Worker: "w-1", Pool: "default", State: health.Ready,
		At: at.Add(-300 * time.Millisecond), DueAt: at.Add(time.Second),
		Started: at.Add(-time.Minute), Host: "box", PID: 12, MaxInFlight: 64,
		Holds: []health.HeldShard{{Run: runA, Shard: 2, Attempt: 1, Items: 25, Rows: 5}, {Run: runA, Shard: 3, Attempt: 1}},
		Load:  health.Load{InFlight: 60, Rows: 55, RowAt: at, Rate: 2.5, TokenRate: 50, MedianMS: 2100, Faults: 3}})
	f.save(record.HeartbeatKey("w-2"), health.Heartbeat{Schema: 1, Worker: "w-2", Pool: "default", State: health.Ready,
		At: at.Add(-time.Second), DueAt: at, Host: "box", PID: 13, MaxInFlight: 64,
		Load: health.Load{UnavailableReason: "connection refused", UnavailableSince: at.Add(-time.Minute)}})
	f.save(record.HeartbeatKey("w-3"), health.Heartbeat{Schema: 1, Worker: "w-3", Pool: "default", State: health.Gone,
		At: at, DueAt: at})
	if err := f.Ports.Queues.Send(t.Context(), "work-default", [][]byte{[]byte("x"), []byte("y")}, 0); err != nil {
		t.Fatal(err)
	}
	const away = "the inference server of 1 of 2 workers has been away for 1m00s: connection refused " +
		"(start the server, or correct its address: the run then goes on by itself)"
	check(t, f.rollout("status"), 0, `RUN                         NAME     PHASE    ITEMS  DONE  FAILED  RATE   ETA  AGE
01JD2ZQ4T5W0M1X9YB7R3K8CVE  nightly  running  100    55%   2       2.5/s  18s  1m40s
`+nightlyWorkers+"\nnightly: "+away+"\n")
	r := f.rollout("status", "nightly")
	for _, want := range []string{"blocked by  " + away + "\n",
		"items       55 of 100 (55%), 5 of them in shards that are not done\n",
		"rate        2.5/s, 50 tokens/s\n", "eta         18s\n",
		"last answer 2026-03-01T13:00:00Z (0s ago)\n", "  2 (5/25), 3  3       default  box:12\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the run lacks %q:\n%s", want, r.out)
		}
	}
	if r.err != "" {
		t.Errorf("stderr: %s", r.err)
	}
}

const nightlyWorkers = `
WORKER  STATE        SEEN  BUSY   RATE   TOKENS/S  MEDIAN  SHARDS               FAULTS  POOL     PROCESS
w-1     ready        0.3s  60/64  2.5/s  50        2.1s    nightly 2 (5/25), 3  3       default  box:12
w-2     engine down  1.0s  0/64   0/s    0         -       -                    0       default  box:13

messages in queues: work-default 2 being handled or delayed
`

func TestStatusNotesUploadsThatAreNotRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.put("prompts/new.csv", "x")
	f.save(record.ManifestKey(runB), record.Manifest{Schema: record.Schema, Run: runB, Name: "bad", CreatedAt: noon,
		Refused: "no pool serves the model X"})
	r := f.rollout("status")
	for _, want := range []string{"bad was refused: no pool serves the model X\n",
		"prompts/new.csv: object \"prompts/new.csv\" is not a prompts file by its name (" +
			"convert it to JSON lines with `rollout convert new.csv new.jsonl`)"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it lacks %q:\n%s", want, r.out)
		}
	}
}

func TestStatusOfStoppedRunCountsUnanswered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Stopped)
	st := run.New(runA)
	if _, _, err := host.Load(t.Context(), f.Ports.Docs, record.CoordinatorKey(runA), &st); err != nil {
		t.Fatal(err)
	}
	st.Counts = shard.Counts{OK: 38, Failed: 62, ByClass: map[string]int{"too_long": 2, "canceled": 60}}
	f.save(record.CoordinatorKey(runA), st)
	r := f.rollout("status", "nightly")
	for _, want := range []string{"items       40 of 100 (40%)\n", "failed      2 (2 too_long)\n",
		"unanswered  60 (60 canceled)\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it lacks %q:\n%s", want, r.out)
		}
	}
}

func TestStatusOfOneRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", 100*time.Second, run.Running)
	check(t, f.rollout("status", "nightly"), 0, `run         01JD2ZQ4T5W0M1X9YB7R3K8CVE
name        nightly
phase       running
blocked by  no worker of pool default is alive (start `+"`rollout up --dir "+f.dir+"`"+`)
items       50 of 100 (50%)
failed      2 (2 too_long)
shards      2 done, 0 running, 4 dispatched, 4 planned
tokens      100 in, 200 out
rate        -
eta         -
model       mock
submitted   2026-03-01T12:58:20Z (1m40s ago)
started     2026-03-01T12:58:20Z (1m40s ago)
`)
}

func TestStatusOfEndedRunNamesItsFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Completed)
	r := f.rollout("status", "nightly")
	want := "completions " + filepath.Join(f.dir, "bucket", "runs", string(runA), "completions.jsonl") + "\n"
	if r.code != 0 || !strings.Contains(r.out, want) {
		t.Errorf("want %q: %+v", want, r)
	}
}

func TestStatusJSONIsOneObjectPerRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Running)
	f.addRun(runB, "weekly", time.Hour, run.Completed)
	r := f.rollout("status", "--json")
	var got []string
	for line := range strings.Lines(r.out) {
		var s status.Status
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %d/%d", s.Run, s.Phase, s.Items.Done, s.Items.Total))
	}
	if d := cmp.Diff([]string{string(runA) + " running 48/100", string(runB) + " completed 98/100"}, got); d != "" ||
		r.code != 0 {
		t.Errorf("code %d (-want +got):\n%s", r.code, d)
	}
	if r := f.rollout("status", "weekly", "--json"); strings.Count(r.out, "\n") != 1 {
		t.Errorf("one run is %q", r.out)
	}
}

func TestRunIsFoundByIDNameOrPrefix(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Completed)
	f.addRun(runB, "nightly", time.Hour, run.Completed)
	f.addRun(runC, "weekly", 2*time.Hour, run.Completed)
	for text, want := range map[string]identity.RunID{
		string(runB): runB, strings.ToLower(string(runB)): runB, "nightly": runA, "weekly": runC, "0z": runC,
		string(runA[:26]): runA,
	} {
		r := f.rollout("status", text, "--json")
		if !strings.HasPrefix(r.out, `{"run_id":"`+string(want)) {
			t.Errorf("%s is %s%s, want %s", text, r.out, r.err, want)
		}
	}
	check(t, f.rollout("status", "01"), 2, "",
		`2 runs start with "01": `+string(runA)+" (nightly), "+string(runB)+" (nightly) (type more of the id)")
	check(t, f.rollout("stop", "monthly"), 1, "",
		"there is no run \"monthly\" (`rollout status --dir "+f.dir+"` lists the runs)")
}

func TestWatchEndsWithTheRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Stopped)
	r := f.rollout("status", "nightly", "--watch", "--json")
	if r.code != 1 || r.err != "rollout: run "+string(runA)+" ended as stopped\n" || strings.Count(r.out, "\n") != 1 ||
		!strings.Contains(r.out, `"phase":"stopped"`) {
		t.Errorf("%+v", r)
	}
}

func TestWatchWritesARunWhenItChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Running)
	f.addRun(runB, "weekly", time.Hour, run.Completed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writes []string
	code := command.Main(ctx, []string{"status", "--watch", "--json", "--dir", f.dir}, command.Env{
		Out: writerFunc(func(p []byte) (int, error) {
			if writes = append(writes, string(p)); len(writes) == 1 {
				f.addRun(runA, "nightly", time.Minute, run.Paused)
			} else {
				cancel()
			}
			return len(p), nil
		}), Err: io.Discard, Clock: clock.Fixed(noon.Add(time.Hour)), Getenv: noEnv})
	if code != 0 || len(writes) != 2 || strings.Count(writes[0], "\n") != 2 ||
		strings.Count(writes[1], "\n") != 1 || !strings.Contains(writes[1], `"phase":"paused"`) {
		t.Errorf("exit code %d, writes %q", code, writes)
	}
}

func TestWatchOfAllRunsEndsOnInterrupt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Running)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	code := command.Main(ctx, []string{"status", "--watch", "--dir", f.dir}, command.Env{
		Out: writerFunc(func(p []byte) (int, error) { cancel(); return out.Write(p) }), Err: io.Discard,
		Clock: clock.Fixed(noon.Add(time.Hour)), Getenv: noEnv})
	if code != 0 || !strings.HasPrefix(out.String(),
		string(runA)+" running 50/100 50% 2 failed 0.83/s ETA 1m00s\n"+string(runA)+" no worker of pool default") {
		t.Errorf("exit code %d, stdout:\n%s", code, &out)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestSteeringCommandsWriteTheControl(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Running)
	for _, c := range []struct {
		args    []string
		says    string
		desired record.Desired
		reason  string
	}{
		{[]string{"pause", "nightly", "--reason", "lunch"}, "pausing", record.DesiredPause, "lunch"},
		{[]string{"resume", "nightly"}, "resuming", record.DesiredRun, ""},
		{[]string{"stop", string(runA[:8])}, "stopping", record.DesiredEnd, "stopped"},
	} {
		check(t, f.rollout(c.args...), 0, c.says+" run "+string(runA)+" (nightly)\n",
			"no worker of pool default is alive: that takes effect when `rollout up --dir "+f.dir+"` runs")
		var ctl record.Control
		if _, _, err := host.Load(t.Context(), f.Ports.Docs, record.ControlKey(runA), &ctl); err != nil {
			t.Fatal(err)
		}
		if ctl.Desired != c.desired || ctl.Reason != c.reason {
			t.Errorf("after %s: %+v", c.args[0], ctl)
		}
	}
	check(t, f.rollout("pause", "nightly"), 1, "", "run "+string(runA)+" can't be paused: it is ending already")
	f.addRun(runB, "weekly", time.Minute, run.Expired)
	check(t, f.rollout("stop", "weekly"), 1, "",
		"run "+string(runB)+" has ended (expired): it can't be stopped\n")
	f.addRun(runC, "hourly", time.Minute, run.Running)
	f.save(record.HeartbeatKey("w"), health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready,
		DueAt: noon.Add(2 * time.Hour)})
	check(t, f.rollout("pause", "hourly"), 0, "pausing run "+string(runC)+" (hourly)\n")
}

// syncBuffer is a buffer for concurrent use. It closes first at the first write.
type syncBuffer struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	first chan struct{}
}

func newSyncBuffer() *syncBuffer { return &syncBuffer{first: make(chan struct{})} }

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buf.Len() == 0 {
		close(s.first)
	}
	return s.buf.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func TestErrorsNameTheirRemedy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", time.Minute, run.Ending)
	f.addRun(runB, "weekly", time.Hour, run.Completed)
	f.addRun(runC, "hourly", time.Hour, run.Stopped)
	folder, csv := t.TempDir(), f.file("x.csv", "a,b\n")
	batch := f.file("batch.toml", "[model]\nuri = \"m\"\n[engine]\nurl = \"mock\"\n[input]\nglob = \"none/*.jsonl\"\n"+
		"[output]\ndir = \""+filepath.ToSlash(t.TempDir())+"/out\"\n")
	for _, c := range []struct {
		code   int
		remedy string
		args   []string
	}{
		{1, "wait for its end: `rollout status --dir " + f.dir + "` shows it", []string{"pause", "nightly", "--dir", f.dir}},
		{1, "`rollout retry " + string(runC) + " --unanswered --dir " + f.dir + "` asks what is left in a new run",
			[]string{"resume", "hourly", "--dir", f.dir}},
		{2, "shorten it", []string{"stop", "nightly", "--reason", strings.Repeat("x", 600), "--dir", f.dir}},
		{2, "remove them", []string{"stop", "nightly", "--reason", "a\tb", "--dir", f.dir}},
		{1, "`rollout status --dir " + f.dir + "` lists the runs", []string{"explain", "nobody", "--dir", f.dir}},
		{2, "name the file that `rollout up --dir " + f.dir + "` wrote with --events-file",
			[]string{"explain", "weekly", "--events-file", "/nowhere", "--dir", f.dir}},
		{2, "name a readable file of JSON lines", []string{"submit", "/nowhere.jsonl", "--dir", f.dir}},
		{2, "write the prompts to a file first", []string{"submit", folder, "--dir", f.dir}},
		{2, "rollout convert x.csv x.jsonl`)", []string{"submit", csv, "--dir", f.dir}},
		{2, "see examples/batch.toml", []string{"infer", "batch", "--config", "/nowhere.toml"}},
		{2, "input.glob", []string{"infer", "batch", "--config", batch, "--dry-run"}},
		{2, "name a writable file with -o", []string{"bundle", "weekly", "-o", "/nowhere/x.tar.gz", "--dir", f.dir}},
		{2, "use one of: default", []string{"worker", "--dir", f.dir, "--engine", "mock", "--pool", "other"}},
	} {
		r := rollout(t.Context(), c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.remedy) || strings.Count(r.err, "rollout: ") != 1 {
			t.Errorf("%q: exit code %d, want %d, with %q:\n%s", c.args, r.code, c.code, c.remedy, r.err)
		}
	}
}
