package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/localstack/rounds"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// scenario is the user's part of a simulation: the files and config of one run,
// and an action on it.
type scenario struct {
	*world
	id     identity.RunID
	planOf identity.RunID // the run whose plan the run has: its own, or that of a child's first ancestor
	files  []file         // the inputs and, once the run is checked, what was appended
	inputs int
	facts  []runFacts // of the run and of its retries
	// pruned are the items that must not be answered, and prunedShards their shards,
	// once the run is checked.
	pruned, prunedShards interval.Set

	cfg    config.Run
	action action

	isDone    bool // the checked run came to its own end
	ended     unansweredItems
	failures  failures
	verdicts  []openScore // of the answers that the check has seen
	parent    *family     // of a child run; nil for the first run
	original  []byte      // the first sampling params, of a child with others
	retriedAt time.Time   // when the child was asked for
}

// file is an input of the run, with the expected results of its lines.
type file struct {
	key   string
	bytes []byte
	lines []line
}

// line is one line of a file: an item and its expected error class.
type line struct {
	id     string // "" for a line without an id
	class  fault.Class
	number int
	bytes  []byte
	role   uint32
}

// action is what the user does to the run. The order of the values is part of
// every seed's history.
type action int

const (
	undisturbed action = iota
	pauses
	stops
	expires
	exhaustsBudget
	failsFast
	actionCount
)

// write draws the run's files and config.
func (w *world) write() *scenario {
	s := &scenario{world: w, cfg: config.DefaultRun(),
		action: action(w.rand.intN("plot", int(actionCount)+2)) % actionCount}
	s.action = s.http.allowed(s.action)
	s.cfg.Shard.Items = 1 + w.rand.intN("shard items", 24)
	s.cfg.Limits.Grace = config.Duration(grace)
	switch s.action {
	case expires:
		s.cfg.Limits.Deadline = config.Duration(w.rand.duration("deadline", 2*time.Second, s.longer(30*time.Second)))
	case exhaustsBudget:
		s.cfg.Limits.Tokens = int64(1 + w.rand.intN("tokens", int(s.longer(400))))
		switch w.rand.intN("budgets", 3) {
		case 0: // dollars alone
			s.cfg.Limits.Tokens = 0
			fallthrough
		case 1:
			s.cfg.Limits.Dollars = float64(1+w.rand.intN("dollars", int(s.longer(600_000)))) / 1e6
		}
		w.maxWords = 1 + w.rand.intN("longest prompt", 60)
	case failsFast:
		s.cfg.Limits.FailFast = true
	}
	s.drawFacts()
	lines, most := 120, 3
	if s.rounds > 0 {
		s.cfg.Kind, lines, most = rounds.Name, 40, 2
	}
	if s.hasJudges() { // there are two models
		s.cfg.Model.URI = "mock"
	}
	if s.constraints.row > 0 && s.rounds == 0 {
		s.cfg.Kind = constrained
	}
	if s.rounds == 0 && !s.judging && s.constraints.looks == 0 && s.rand.intN("dedupe", 3) == 0 {
		s.cfg.Dedupe = config.Dedupe{Enabled: true, Sampled: true}
	}
	if !s.cfg.Dedupe.Enabled && s.rand.intN("graded", 3) == 0 {
		s.cfg.Grades = graders()
	}
	if s.judging {
		s.cfg.Grades = append(s.cfg.Grades, judgeGrader())
	}
	if s.tickets != nil {
		s.cfg.Grades = nil
		s.writeTickets()
		return s
	}
	ids := map[string]bool{}
	for f := range 1 + w.rand.intN("files", most) {
		s.files = append(s.files, w.file(fmt.Sprintf("prompts/%d.jsonl", f), lines, ids))
	}
	s.inputs = len(s.files)
	return s
}

// longer returns d, or four times as long in a run that does one thing after another: so
// that what the user does meets it at all of them.
func (w *world) longer(d time.Duration) time.Duration {
	if w.tickets != nil && w.tickets.reflects {
		return 4 * d
	}
	return d
}

// file draws one file with all kinds of lines.
func (w *world) file(key string, lines int, ids map[string]bool) file {
	f := file{key: key}
	var b bytes.Buffer
	for n := range w.rand.intN("lines", lines) {
		l := line{number: n + 1}
		if w.rand.chance("poison", w.poison.share()) {
			l.class = fault.Poison
			l.bytes = fmt.Appendf(nil, `{"prompt":"%s %d of %s"}`, poisonPrompt, n, key)
			b.Write(l.bytes)
			b.WriteString("\n")
			f.lines = append(f.lines, l)
			continue
		}
		kind := w.rand.intN("kind", 12)
		if w.http != nil && kind > 5 && w.rand.chance("bad prompt", 0.03) {
			kind = -1
		}
		switch kind {
		case -1:
			bad := w.rand.intN("bad kind", 2)
			l.bytes = fmt.Appendf(nil, `{"prompt":"`+badPrompt+` %d of %s"}`, bad, n, key)
		case 0:
			b.WriteString("\n")
			continue
		case 1:
			l.class, l.bytes = fault.InvalidLine, []byte(`["no", "object"]`)
		case 2:
			l.class = fault.Refused
			l.bytes = fmt.Appendf(nil, `{"prompt":"%s %d"}`, refusedPrompt, n)
		case 3, 4, 5:
			l.id = fmt.Sprintf("id-%d", w.rand.intN("id", 400))
			if ids[l.id] {
				l.class = fault.DuplicateID
			}
			ids[l.id] = true
			l.bytes = fmt.Appendf(nil, `{"id":%q,"prompt":"number %d of %s"}`, l.id, n, key)
		default:
			l.bytes = fmt.Appendf(nil, `{"prompt":"number %d%s","tag":[%d, 1e2]}`, w.rand.intN("prompt", 50), w.words(), n)
		}
		b.Write(l.bytes)
		b.WriteString("\n")
		f.lines = append(f.lines, l)
	}
	f.bytes = b.Bytes()
	return f
}

// words draws words that make a prompt dearer, in a run with a budget.
func (w *world) words() string {
	if w.maxWords == 0 {
		return ""
	}
	return strings.Repeat(" and", w.rand.intN("words", w.maxWords))
}

// submit puts the files and creates the run over all of them. It repeats the
// submission, since events may be delivered twice.
func (s *scenario) submit(ctx context.Context) {
	m := record.Manifest{Name: "sim"}
	for _, f := range s.files {
		info, err := s.bucket.Put(ctx, f.key, bytes.NewReader(f.bytes), blob.PutOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		m.Inputs = append(m.Inputs, record.Input{Key: f.key, Version: info.Version, Size: info.Size})
	}
	m.Run = identity.UploadRun("sim", s.files[0].key, m.Inputs[0].Version)
	s.id, s.planOf = m.Run, m.Run
	s.spending.follow(s.id)
	p := s.start(ctx, "submitter", 0)
	sub := submit.New(s.ports(p), submit.Options{Deployment: s.deploy, Kinds: s.kinds(), Inputs: s.inputLimits()})
	for range 1 + s.rand.intN("submissions", 3) {
		for {
			err := sub.Create(ctx, m, s.cfg)
			if err == nil {
				break
			}
			s.tracef("submit again: %v", err)
		}
	}
}

// inputLimits have every other run list its files in parts of one or two, if it has several.
func (s *scenario) inputLimits() *record.InputLimits {
	l := record.DefaultInputLimits()
	if s.seed%2 == 0 {
		l.Inline, l.Part, l.Head = 1, 1+int(s.seed/2%2), 1
	}
	return &l
}

// act performs the user's action during the run.
func (s *scenario) act(ctx context.Context, id identity.RunID, a action) {
	user := s.api()
	do := func(what string, f func() error) (done bool) {
		err := f()
		s.tracef("user: %s: %v", what, err)
		return err == nil // the request of a child may not have become a run yet
	}
	switch a {
	case pauses:
		for range 1 + s.rand.intN("pauses", 3) {
			pause(ctx, s.rand.duration("before pause", 0, s.longer(6*time.Second)))
			isPaused := do("pause", func() error { return user.Pause(ctx, id, "lunch") })
			if isPaused {
				s.audit.setPaused(id, true)
			}
			paused := time.Now()
			pause(ctx, s.rand.duration("paused", 100*time.Millisecond, 20*time.Second))
			if isPaused && ctx.Err() == nil {
				s.checkPaused(ctx, id, time.Since(paused))
			}
			s.audit.setPaused(id, false)
			do("resume", func() error { return user.Resume(ctx, id, "") })
		}
	case stops:
		pause(ctx, s.rand.duration("before stop", 0, s.longer(12*time.Second)))
		if do("stop", func() error { return user.Stop(ctx, id, "enough") }) {
			s.audit.setPaused(id, true)
			s.spending.mustEnd(id)
		}
	}
}

// sendSpuriousHints sends hints at drawn times, also wrong ones. Any process may
// send hints at any time.
func (s *scenario) sendSpuriousHints(ctx context.Context, id identity.RunID) {
	ports := s.ports(s.start(ctx, "nag", 0))
	for s.faultsOn() && ctx.Err() == nil {
		pause(ctx, s.rand.duration("nag", 0, 8*time.Second))
		n := s.rand.intN("nag shard", 60)
		var hint events.Payload
		switch s.rand.intN("nag kind", 7) {
		case 0:
			hint = events.ShardLost{Run: string(id), Shard: n, Generation: s.rand.intN("nag generation", 3)}
		case 1:
			hint = events.ShardReleased{Run: string(id), Shard: n, Worker: "unknown", Attempt: 1}
		case 2:
			hint = events.Wakeup{Run: string(id), Reason: "nag"}
		case 3:
			hint = events.PlanAdvanced{Run: string(id)}
		case 4:
			_ = ports.Send(ctx, host.TaskQueue, events.Finalize{Run: string(id)})
			continue
		case 5:
			_ = ports.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(id)})
			continue
		case 6: // a segment that finalize would not cut
			to := n/4 + 1 + s.rand.intN("nag segment", 9)
			_ = ports.Send(ctx, host.TaskQueue, events.FinalizeSegment{Run: string(id), From: n / 4, To: to})
			continue
		}
		_ = ports.Send(ctx, host.CoordinateQueue, hint) // hints may be lost
	}
}

// since is when the run was asked for.
func (s *scenario) since() time.Time {
	if s.parent != nil {
		return s.retriedAt
	}
	return s.startedAt
}

// awaitEnd waits until the run has ended. It ends the faults after faultsFor.
func (s *scenario) awaitEnd(ctx context.Context) run.State {
	for {
		st, _ := s.state(ctx, s.id)
		if st.Phase.Ended() {
			return st
		}
		if time.Since(s.since()) > faultsFor {
			s.faultsEnded.Store(true)
		}
		if time.Since(s.since()) > patience {
			b, _ := json.Marshal(st)
			s.t.Errorf("seed %d: the run has not ended: %s", s.seed, b)
			return st
		}
		pause(ctx, 250*time.Millisecond)
	}
}
