package command

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/installation"
)

func wideScreen() screen {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := status.Status{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Name: strings.Repeat("nightly", 9), Phase: run.Running,
		CreatedAt: now, Items: status.Items{Total: 1000, Done: 400, Uncommitted: 100},
		Blockers: []status.Blocker{{Code: diagnosis.NoEngine,
			Text:   "the inference server has been away for 12s: " + strings.Repeat("connection refused ", 9),
			Remedy: "start `rollout up`"}}}
	w := status.WorkerStatus{Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Pool: "default", Alive: true, State: health.Ready,
		Engine: status.EngineAway, Host: "a-rather-long-host-name",
		InFlight: 64, HeartbeatAt: now, Load: health.Load{InFlight: 60, MedianMS: 2100},
		Holds: []health.HeldShard{{Run: r.Run, Shard: 7, Rows: 5, Items: 256}}}
	return screen{Overview: api.Overview{Runs: []status.Status{r}, Workers: []status.WorkerStatus{w}}, now: now,
		path:      func(key string) string { return key },
		withFlags: func(text string) string { return withLocationFlags(text, installation.Location{Dir: "/data"}) }}
}

func TestTablesFitNarrowTerminals(t *testing.T) {
	t.Parallel()
	for _, one := range []bool{false, true} {
		s := wideScreen()
		s.one, s.live, s.columns = one, true, 88
		for line := range strings.Lines(s.body()) {
			if n := terminal.Width(strings.TrimSuffix(line, "\n")); n > s.columns && !strings.HasPrefix(line, "name") {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if !strings.Contains(s.body(), "…7R3K8CVE") || !strings.Contains(s.body(), "7 (5/256)") {
			t.Errorf("the worker or its shard is missing:\n%s", s.body())
		}
	}
}

// In a cloud, users know a machine by its instance id.
func TestWorkerProcessNamesInstanceOrHost(t *testing.T) {
	t.Parallel()
	s := wideScreen()
	s.Workers[0].PID = 12
	for instance, want := range map[string]string{"": "a-rather-long-host-name:12",
		"i-0123456789abcdef0": "i-0123456789abcdef0:12"} {
		if s.Workers[0].Instance = instance; !strings.Contains(s.body(), want) {
			t.Errorf("instance %q: no %q in\n%s", instance, want, s.body())
		}
	}
}

func TestSeveralServersAreATable(t *testing.T) {
	t.Parallel()
	s := wideScreen()
	s.Workers[0].Load.Servers = []health.Server{
		{Name: "http://a/v1", State: "closed", InFlight: 12, Limit: 64, Waiting: 3},
		{Name: "http://b/v1", State: "open", Waiting: 3, LastError: "connection refused"},
	}
	const want = `SERVER       STATE  BUSY   WAITING  LAST ERROR
http://a/v1  ready  12/64  3        
http://b/v1  down   0      -        connection refused
`
	if !strings.Contains(s.body(), want) {
		t.Errorf("it lacks\n%s\n%s", want, s.body())
	}
	s.Workers[0].Load.Servers = s.Workers[0].Load.Servers[:1]
	if strings.Contains(s.body(), "SERVER") {
		t.Errorf("a single server needs no table:\n%s", s.body())
	}
	s.Workers[0].Load.Servers[0].State, s.Workers[0].Load.Servers[0].LastError = "set_aside", "status 403: no"
	if body := s.body(); !strings.Contains(body, "http://a/v1  set aside  12/64  3        status 403: no\n") {
		t.Errorf("a server that is set aside is not shown:\n%s", body)
	}
}

func TestLimitsOfPoolsAreLines(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := screen{now: now, Overview: api.Overview{Workers: []status.WorkerStatus{
		{Pool: "a", Alive: true, Load: health.Load{Limit: &health.Limit{Requests: 600, RequestsFrom: "headers",
			UsedRequests: 590, Waiting: 4, WaitUntil: now.Add(7 * time.Second)}}},
		{Pool: "b", Alive: true, Load: health.Load{Limit: &health.Limit{Waiting: 1, WaitUntil: now.Add(-time.Second)}}},
		{Pool: "c", Alive: true},
	}}}
	const want = "limit of pool a: 600 requests a minute (as the server states), 98% used; " +
		"the server wants no requests for 7.0s; waiting requests: 4\n"
	if got := s.limits(); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestColoursChangeNoText(t *testing.T) {
	t.Parallel()
	for _, one := range []bool{false, true} {
		plain, coloured := wideScreen(), wideScreen()
		plain.one, coloured.one, coloured.colours = one, one, true
		if got := terminal.Plain(coloured.body()); got != plain.body() || coloured.body() == got {
			t.Errorf("uncoloured:\n%s\nplain:\n%s", got, plain.body())
		}
	}
}

func TestRemediesContainCompleteCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"start `rollout up`":                     "start `rollout up --dir /data`",
		"`rollout resume X` or `rollout stop X`": "`rollout resume X --dir /data` or `rollout stop X --dir /data`",
		"start `gpuworker`":                      "start `gpuworker`",
		"`rollout up --dir D`":                   "`rollout up --dir D`",
		"one ` only":                             "one ` only",
	} {
		if got := withLocationFlags(text, installation.Location{Dir: "/data"}); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestLocationFlagsNameDirAndCloud(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]installation.Location{
		"--dir /data":             {Dir: "/data"},
		"--cloud aws":             {Dir: ".", Cloud: "aws"},
		"--cloud aws --dir stack": {Dir: "stack", Cloud: "aws"},
	} {
		if got := withLocationFlags("`rollout status`", p); got != "`rollout status "+want+"`" {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestWorkersOfOneRunTellShardsOfOthersApart(t *testing.T) {
	t.Parallel()
	s := wideScreen()
	s.one = true
	w := &s.Workers[0]
	w.Load.InFlight, w.InFlight, w.Engine = 57, 35, status.EngineReady
	w.Holds = append(w.Holds, health.HeldShard{Run: "other", Shard: 7, Rows: 1, Items: 9}, health.HeldShard{Run: "other"})
	dead := *w
	dead.Worker, dead.Alive = "dead", false
	dead.Holds = []health.HeldShard{{Run: w.Holds[0].Run, Shard: 7, Rows: 22, Items: 44}}
	s.Workers = append(s.Workers, dead)
	body := s.body()
	for _, want := range []string{"  7 (5/256), 2 of other runs  ", "  57→35  "} {
		if !strings.Contains(body, want) {
			t.Errorf("it lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, "22/44") {
		t.Errorf("the dead worker is shown with a shard that another has taken over:\n%s", body)
	}
	if s.Workers = s.Workers[1:]; !strings.Contains(s.body(), "7 (22/44)") {
		t.Errorf("the dead worker is shown without its shard:\n%s", s.body())
	}
}

func TestStatusWithoutOpenRunsShowsWorkers(t *testing.T) {
	t.Parallel()
	s := wideScreen()
	s.Runs = nil
	if body := s.body(); !strings.Contains(body, "no runs yet") || !strings.Contains(body, "WORKER") {
		t.Error(body)
	}
	s = wideScreen()
	s.Runs = s.Runs[:1]
	s.Runs[0].Phase, s.live = run.Completed, false
	if body := s.body(); !strings.Contains(body, "completed") || !strings.Contains(body, "WORKER") {
		t.Errorf("with an ended run:\n%s", body)
	}
}
