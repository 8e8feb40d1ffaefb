package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/snapshot"
)

// addSnapshot saves a snapshot of a run with that age at 13:00.
func (f fixture) addSnapshot(id identity.RunID, state, label string, age time.Duration) snapshot.Snapshot {
	f.t.Helper()
	s := snapshot.Store{Blobs: f.Bucket, Docs: f.Ports.Docs, Clock: clock.Fixed(noon.Add(time.Hour - age))}
	snap, err := s.Save(f.t.Context(), fstest.MapFS{"step": {Data: []byte(state)}},
		snapshot.Details{Run: id, Kind: snapshot.TrainState, Algorithm: "sft", Label: label,
			Meta: []byte(`{"step":` + state + `}`)})
	if err != nil {
		f.t.Fatal(err)
	}
	return snap
}

func TestSnapshotsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check(t, f.rollout("snapshot", "list"), 0, "no snapshots\n")
	check(t, rollout(t.Context(), "snapshot", "list", "--dir", f.dir, "--json"), 0, "[]\n")
	old, mid, young := f.addSnapshot(runA, "10", "warm up", 2*time.Hour), f.addSnapshot(runB, "20", "", time.Hour),
		f.addSnapshot(runA, "30", "", time.Minute)
	check(t, f.rollout("snapshot", "list"), 0, ""+
		"SNAPSHOT"+strings.Repeat(" ", 58)+"RUN                         MADE BY  SIZE     AGE    LABEL\n"+
		young.ID+"  "+string(runA)+"  sft      2.0 KiB  1m00s  \n"+
		mid.ID+"  "+string(runB)+"  sft      2.0 KiB  1h00m  \n"+
		old.ID+"  "+string(runA)+"  sft      2.0 KiB  2h00m  warm up\n")
	f.addRun(runB, "nightly", time.Hour, run.Completed)
	for _, c := range []struct {
		args string
		want []snapshot.Snapshot
	}{
		{"--run " + string(runA), []snapshot.Snapshot{young, old}},
		{"--run nightly", []snapshot.Snapshot{mid}},
		{"--limit 1", []snapshot.Snapshot{young}},
		{"--kind train_state --label warm", []snapshot.Snapshot{old}},
		{"--kind buffer", nil},
	} {
		got := rollout(t.Context(), append([]string{"snapshot", "list", "--dir", f.dir, "--json"},
			strings.Fields(c.args)...)...)
		var snaps []snapshot.Snapshot
		if err := json.Unmarshal([]byte(got.out), &snaps); err != nil || got.code != 0 || len(snaps) != len(c.want) {
			t.Errorf("%s: %+v, %v", c.args, got, err)
			continue
		}
		for i := range snaps {
			if snaps[i].ID != c.want[i].ID || snaps[i].Parts[0] != c.want[i].Parts[0] {
				t.Errorf("%s: %+v, want %+v", c.args, snaps[i], c.want[i])
			}
		}
	}
	check(t, rollout(t.Context(), "snapshot", "list", "--dir", f.dir, "--run", "nosuch"), 2, "",
		`there is no run "nosuch"`)
	check(t, rollout(t.Context(), "snapshot", "list", "--dir", f.dir, "--run", "01JD"), 2, "", "2 runs start with")
	check(t, rollout(t.Context(), "snapshot", "list", "--dir", f.dir, "--limit", "-1"), 2, "", "--limit")
	check(t, rollout(t.Context(), "snapshot", "lsit"), 2, "", "unknown command")
}

func TestSnapshotIsShownByIDOrPrefix(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	snap := f.addSnapshot(runA, "10", "warm up", time.Hour)
	id, _ := identity.ParseContentID(snap.ID)
	check(t, f.rollout("snapshot", "show", snap.ID[:8]), 0, ""+
		"snapshot    "+snap.ID+"\n"+
		"run         "+string(runA)+"\n"+
		"kind        train_state\n"+
		"made by     sft\n"+
		"label       warm up\n"+
		"created     2026-03-01T12:00:00Z (1h00m ago)\n"+
		"size        2.0 KiB\n"+
		"meta        {\"step\":10}\n"+
		"tar         "+filepath.Join(f.dir, "bucket", identity.ContentKey(id))+"\n")
	got := rollout(t.Context(), "snapshot", "show", snap.ID, "--dir", f.dir, "--json")
	var shown snapshot.Snapshot
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || shown.ID != snap.ID || shown.Run != runA ||
		shown.Label != "warm up" {
		t.Errorf("%s, %v", got.out, err)
	}
	missing := strings.Repeat("0", 64)
	check(t, f.rollout("snapshot", "show", missing), 2, "", "snapshot not found: "+missing)
}

func TestSnapshotIsRestoredCompletelyOrNotAtAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	snap := f.addSnapshot(runA, "10", "", time.Hour)
	to := filepath.Join(t.TempDir(), "state")
	check(t, f.rollout("snapshot", "restore", snap.ID, to), 0, "", "restored snapshot "+snap.ID+" to "+to)
	if got, err := os.ReadFile(filepath.Join(to, "step")); err != nil || string(got) != "10" {
		t.Errorf("restored %q, %v", got, err)
	}
	check(t, f.rollout("snapshot", "restore", snap.ID, to), 2, "", "it exists")
	id, _ := identity.ParseContentID(snap.ID)
	if _, err := f.Bucket.Put(t.Context(), identity.ContentKey(id),
		strings.NewReader(strings.Repeat("x", int(snap.Parts[0].Length))), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "state")
	check(t, f.rollout("snapshot", "restore", snap.ID, other), 3, "", "has other bytes")
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Errorf("it left the folder: %v", err)
	}
}

func TestPruneKeepsNewestAndLabeled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i, label := range []string{"", "", "", "best", "", ""} { // the newest first
		f.addSnapshot(runA, string(rune('1'+i)), label, time.Duration(i+1)*time.Hour)
	}
	f.addSnapshot(runB, "9", "", 9*time.Hour)
	prune := func(args ...string) result {
		return rollout(t.Context(), append([]string{"snapshot", "prune", "--dir", f.dir}, args...)...)
	}
	check(t, prune(), 2, "", "--run is missing")
	check(t, prune("--run", string(runA), "--keep-last", "-1"), 2, "", "negative")
	if got := prune("--run", string(runA), "--dry-run"); got.code != 0 ||
		!strings.HasSuffix(got.out, "would prune 2 snapshots\n") {
		t.Errorf("%+v", got)
	}
	check(t, prune("--run", string(runA), "--max-age", "5h30m"), 0, "pruned 1 snapshot\n")
	check(t, prune("--run", string(runA)), 0, "pruned 1 snapshot\n")
	check(t, prune("--run", string(runA), "--keep-last", "1", "--keep-labeled=false"), 0, "pruned 3 snapshots\n")
	if got := f.rollout("snapshot", "list"); strings.Count(got.out, "\n") != 3 {
		t.Errorf("there stay:\n%s", got.out)
	}
	objects, err := f.Bucket.List(t.Context(), "cas/", "", 10)
	if err != nil || len(objects) != 2 {
		t.Errorf("objects stay: %v, %v", objects, err)
	}
}

func TestCleanDeletesUnfinishedUploads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "young": 23 * time.Hour} {
		f.put("pending/"+name, "12345")
		at := noon.Add(time.Hour - age)
		if err := os.Chtimes(filepath.Join(f.dir, "bucket", "pending", name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	f.checkClean([]string{"clean"}, "unfinished uploads  freed 5 B in 1 object\nfreed 5 B in 1 object\n",
		"0 B in runs/, 0 B in prompts/, 0 B in work/")
	if left, err := f.Bucket.List(t.Context(), "pending/", "", 10); err != nil || len(left) != 1 ||
		left[0].Key != "pending/young" {
		t.Errorf("there stay %v, %v", left, err)
	}
}
