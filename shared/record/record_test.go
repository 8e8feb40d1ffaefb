package record

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/capacity"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/run"
	"rollout/shared/fault"
)

const runID = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

func TestKeys(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"run/" + runID:                                             ManifestKey(runID),
		"control/" + runID:                                         ControlKey(runID),
		"coordinator/" + runID:                                     CoordinatorKey(runID),
		"plan/" + runID:                                            PlanKey(runID),
		"beat/w-1":                                                 HeartbeatKey("w-1"),
		"worker/w-1":                                               WorkerKey("w-1"),
		"work/" + runID + "/input/000003":                          UnpackedKey(runID, 3),
		"work/" + runID + "/plan/000012.cuts":                      ShardTableKey(runID, 12),
		"work/" + runID + "/plan/000012-003.ids":                   PlanHashesKey(runID, 12, 3, HashIDs),
		"work/" + runID + "/index/000012.requests":                 RepeatsKey(runID, 12, HashRequests),
		"work/" + runID + "/index/000008-000016.ids":               HashesKey(runID, Hashes{From: 8, To: 16}, HashIDs),
		"work/" + runID + "/plan/000012.json":                      RangeKey(runID, 12),
		"work/" + runID + "/index/000012.json":                     IndexKey(runID, 12),
		"work/" + runID + "/shards/0/7-3-abc":                      ShardObjectKey(runID, 7, 3, "abc"),
		"work/" + runID + "/shards/12/12345-18446744073709551615-": ShardObjectKey(runID, 12345, 1<<64-1, ""),
		"runs/" + runID + "/completions.jsonl":                     OutputKey(runID, CompletionsFile),
		"runs/" + runID + "/errors.jsonl":                          OutputKey(runID, ErrorsFile),
		"runs/" + runID + "/summary.json":                          OutputKey(runID, SummaryFile),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRunFromKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"run/" + runID: true, "coordinator/" + runID: true,
		runID: false, "run/": false, "": false, "run/x": false, "a/b/" + runID: false,
		"run/" + runID + "/": false, "shard/0123abcd-" + runID + "-7": false,
	} {
		if id, ok := RunFromKey(key); ok != want || ok && id != runID {
			t.Errorf("%q: %q, %v", key, id, ok)
		}
	}
}

func TestLocateCoversEveryByteOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p Plan
		for range rapid.IntRange(0, 6).Draw(t, "inputs") {
			size := rapid.Int64Range(0, 4).Draw(t, "ranges") * RangeSize
			size += rapid.SampledFrom([]int64{0, 0, 1, 77, RangeSize - 1}).Draw(t, "rest")
			p.Ranges = append(p.Ranges, Ranges{Size: size, Count: RangeCount(size)})
			p.Total += RangeCount(size)
		}
		at := make([]int64, len(p.Ranges))
		last := 0
		for k := range p.Total {
			got, ok := p.Locate(k)
			if !ok || got.Input < last || got.Offset != at[got.Input] || got.Limit <= got.Offset ||
				got.Limit-got.Offset > RangeSize || got.Offset%RangeSize != 0 || got.Source != p.Ranges[got.Input] {
				t.Fatalf("range %d: %+v, %v; at %v", k, got, ok, at)
			}
			last, at[got.Input] = got.Input, got.Limit
		}
		for i, r := range p.Ranges {
			if at[i] != r.Size {
				t.Fatalf("input %d of %d bytes is covered up to %d", i, r.Size, at[i])
			}
		}
		for _, k := range []int{-1, p.Total, p.Total + 1} {
			if _, ok := p.Locate(k); ok {
				t.Fatalf("range %d of %d is found", k, p.Total)
			}
		}
	})
}

// Only the ranges of the last appended object are still to be cut.
func TestLocateFindsTheRangesOfTheInputsAndOfWhatWasAppendedLast(t *testing.T) {
	t.Parallel()
	const size = RangeSize + 7
	p := Plan{Ranges: []Ranges{{Size: size, Count: 2}, {Size: 1, Count: 1}}, Total: 9,
		Appended: &Appended{Ranges: Ranges{Size: size, Count: 2}, Input: 4, First: 7}}
	type place struct {
		input         int
		offset, limit int64
	}
	want := map[int]place{0: {0, 0, RangeSize}, 1: {0, RangeSize, size}, 2: {1, 0, 1}, 7: {4, 0, RangeSize},
		8: {4, RangeSize, size}}
	for k := -1; k <= 10; k++ {
		at, ok := p.Locate(k)
		if w, known := want[k]; ok != known || ok && w != (place{at.Input, at.Offset, at.Limit}) {
			t.Errorf("range %d: %+v, %v; want %+v", k, at, ok, w)
		}
	}
	if p.Sources() != 5 || p.LastFirst() != 7 {
		t.Errorf("%d sources, the last from range %d", p.Sources(), p.LastFirst())
	}
	if _, ok := p.Source(runID, 5); ok {
		t.Error("it has a sixth source")
	}
}

func TestRangeCount(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int{
		-1: 0, 0: 0, 1: 1, RangeSize - 1: 1, RangeSize: 1, RangeSize + 1: 2, 5 << 30: 80,
		1<<63 - 1: 1 << 37,
	} {
		if got := RangeCount(size); got != want {
			t.Errorf("%d bytes: %d ranges, want %d", size, got, want)
		}
	}
}

// TestJSON pins the format of documents and objects.
func TestJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value any
		want  string
	}{
		{Manifest{Schema: 1, Run: runID, Name: "n", Kind: "batch", CreatedAt: at,
			Inputs: []Input{{"k", "v", 9, "gzip", "u"}}, Dialect: "plain",
			Config: config.Run{SchemaVersion: 1}, ConfigKey: "c", ModelURI: "m", ModelID: "h", Pool: "p", Refused: "r"},
			`{"schema":1,"run":"` + runID + `","name":"n","kind":"batch","created_at":"2025-01-01T00:00:00Z",` +
				`"inputs":[{"key":"k","version":"v","size":9,"packed":"gzip","name":"u"}],"dialect":"plain",` +
				`"config":` + string(Encode(config.Run{SchemaVersion: 1})) +
				`,"config_key":"c","model_uri":"m","model_id":"h","pool":"p","refused":"r"}`},
		{Control{1, 2, DesiredPause, "why", "", at, ""},
			`{"schema":1,"sequence":2,"desired":"pause","reason":"why","at":"2025-01-01T00:00:00Z"}`},
		{Control{1, 4, DesiredEnd, "stopped", "why", at, ""},
			`{"schema":1,"sequence":4,"desired":"end","reason":"stopped","text":"why","at":"2025-01-01T00:00:00Z"}`},
		{Control{1, 3, DesiredRun, "", "", at, "status_401"},
			`{"schema":1,"sequence":3,"desired":"run","at":"2025-01-01T00:00:00Z","refused":"status_401"}`},
		{Plan{Schema: 1, Ranges: []Ranges{{"k", "v", 9, 1, 0, ""}}, Total: 2, Merged: 1, Shards: 3, Items: 4, Lines: 5,
			Problem: "p", ProblemKind: InputMissing, Control: 6,
			IDs: []Hashes{{0, 8, 9}}, Requests: []Hashes{{From: 8, To: 9, Count: 7}}},
			`{"schema":1,"ranges":[{"key":"k","version":"v","size":9,"count":1}],"total":2,"merged":1,"shards":3,` +
				`"items":4,"lines":5,"problem":"p","trouble":"missing","control":6,` +
				`"ids":[{"from":0,"to":8,"count":9}],"requests":[{"from":8,"to":9,"count":7}]}`},
		{Plan{Schema: 1, Ranges: []Ranges{{"k", "v", 9, 1, 0, ""}}, Total: 4, Growing: true,
			Appended: &Appended{Ranges: Ranges{"a", "w", 8, 2, 0, ""}, Input: 5, First: 2, MadeFrom: "d"}},
			`{"schema":1,"ranges":[{"key":"k","version":"v","size":9,"count":1}],"total":4,"merged":0,"shards":0,` +
				`"items":0,"lines":0,"growing":true,` +
				`"appended":{"key":"a","version":"w","size":8,"count":2,"input":5,"first":2,"made_from":"d"}}`},
		{RangeResult{1, 2, 3, 4, 5, nil}, `{"shards":1,"items":2,"lines":3,"ids":4,"requests":5}`},
		{RangeResult{Shards: 3, Roles: []run.RolePlan{{Shards: 1, Items: 1}, {Shards: 2, Items: 2}}},
			`{"shards":3,"items":0,"lines":0,"ids":0,"roles":[{"shards":1,"items":1},{"shards":2,"items":2}]}`},
		{IndexEntry{1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
			`{"range":1,"input":2,"first_shard":3,"shards":4,"first_item":5,"items":6,"first_line":7,"lines":8,` +
				`"duplicates":9,"copies":10}`},
		{WorkerMark{1, 2, "why", at}, `{"schema":1,"sequence":2,"draining":"why","failed":"2025-01-01T00:00:00Z"}`},
		{WorkerMark{Schema: 1}, `{"schema":1,"sequence":0}`},
		{Machine{"h", 1, 2, []capacity.GPU(nil), "i-1", cost.Kind{}, time.Time{}, 0, "full"},
			`{"host":"h","pid":1,"cpus":2,"instance":"i-1","isolation":"full"}`},
	} {
		if got := string(Encode(c.value)); got != c.want {
			t.Errorf("%T:\ngot  %s\nwant %s", c.value, got, c.want)
		}
	}
}

func TestSummaryFields(t *testing.T) {
	t.Parallel()
	var got map[string]json.RawMessage
	if err := json.Unmarshal(Encode(Summary{Schema: 1, Message: "m", StartedAt: time.Unix(0, 0)}), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(`schema run_id name phase reason message items completed failed failed_by_class
		copies shards prompt_tokens completion_tokens wasted_tokens cost_usd cost model workers created_at started_at ended_at
		seconds outputs errors`) {
		if _, ok := got[name]; !ok {
			t.Errorf("the field %s is missing", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("the field %s is not expected", name)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		kind     fault.Kind
		want     string
	}{
		{"newer schema", `{"schema":2,"sequence":1,"desired":"dance"}`, fault.Invalid, "schema 2"},
		{"newer schema with other types", `{"schema":2,"sequence":"one"}`, fault.Invalid, "upgrade"},
		{"not JSON", `{"schema":1`, fault.Corrupt, "control/x"},
		{"other types", `{"schema":1,"sequence":"one"}`, fault.Corrupt, "control/x"},
		{"not an object", `[1]`, fault.Corrupt, "control/x"},
		{"empty", ``, fault.Corrupt, "control/x"},
	} {
		var v Control
		err := Decode([]byte(c.in), &v, "control/x")
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v (%s)", c.name, err, fault.KindOf(err))
		}
	}
	want := Control{Schema: 1, Sequence: 7, Desired: DesiredEnd, Reason: "stopped"}
	var got Control
	if err := Decode(Encode(want), &got, "control/x"); err != nil || got != want {
		t.Errorf("%+v is read back as %+v, %v", want, got, err)
	}
	var entry IndexEntry // objects have no schema version
	if err := Decode([]byte(`{"range":3}`), &entry, "index"); err != nil || entry.Range != 3 {
		t.Errorf("%+v, %v", entry, err)
	}
}

func TestLabelIsTheNameOrTheKey(t *testing.T) {
	t.Parallel()
	if got := (Input{Key: "k"}).Label(); got != "k" {
		t.Error(got)
	}
	if got := (Input{Key: "k", Name: "n"}).Label(); got != "n" {
		t.Error(got)
	}
}

func TestObjectsOfShardsAndHashListsAreTold(t *testing.T) {
	t.Parallel()
	const r = runID
	h := Hashes{From: 0, To: 7}
	for key, want := range map[string]struct {
		shard int // -1 for none
		list  bool
	}{
		ShardObjectKey(r, 0, 1, "w-1"):          {0, false},
		ShardObjectKey(r, 12345, 3, ""):         {12345, false},
		ShardObjectsDir(r) + "0/12345-3-w":      {-1, false},
		ShardObjectsDir(r) + "0/x-3-w":          {-1, false},
		ShardObjectsDir(r) + "0/7":              {-1, false},
		ShardObjectKey("other", 0, 1, "w"):      {-1, false},
		PlanHashesKey(r, 3, 0, HashIDs):         {-1, true},
		HashesKey(r, h, HashRequests):           {-1, true},
		RepeatsKey(r, 3, HashIDs):               {-1, false},
		ShardTableKey(r, 3):                     {-1, false},
		IndexKey(r, 3):                          {-1, false},
		FileEntriesKey(r):                       {-1, false},
		"work/" + runID + "/range/000000-1.ids": {-1, false},
	} {
		n, ok := ShardOfObject(r, key)
		if !ok {
			n = -1
		}
		if list := IsHashList(r, key); n != want.shard || list != want.list {
			t.Errorf("%s is of shard %d, a list: %v", key, n, list)
		}
	}
}
