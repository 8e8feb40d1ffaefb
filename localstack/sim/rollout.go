package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// tickets are those of a rollout, and how they are asked about.
type tickets struct {
	all     []ticket // in the order of the input
	refused int      // invalid lines
	batch   int      // how many a global batch has
	decodes []config.Decode
	seed    int64
}

type ticket struct{ group, label, content string }

// drawTickets draws whether the run is a rollout, as a tenth of all runs are. Its world
// has none of the other plots that change what a run asks.
func (w *world) drawTickets() *tickets {
	if w.rounds > 0 || w.http != nil || w.judging || w.constraints.row > 0 || w.poison != noPoison ||
		w.limit.Amount != (ratelimit.Amount{}) || w.rand.intN("rollout", 4) == 3 {
		return nil
	}
	return &tickets{batch: 1 + w.rand.intN("batch", 12), seed: int64(w.rand.intN("order", 1000))}
}

// verdictPattern finds verdicts in answers, of which some have none.
const verdictPattern = `#([0-9a-c])`

// writeTickets draws the tickets of the rollout, and sets its config.
func (s *scenario) writeTickets() {
	r, t := s.rand, s.tickets
	t.decodes = []config.Decode{{Samples: 1 + r.intN("samples", 3)}}
	if seed := int64(r.intN("decode seed", 100)); r.intN("decodes", 2) == 0 {
		t.decodes = append(t.decodes, config.Decode{Seed: &seed, Samples: r.intN("samples", 3)})
	}
	s.cfg.Kind, s.cfg.Missions = config.KindRollout, []config.Mission{{Name: "m", Scaffold: "S", Entries: []string{"a",
		"b"}}}
	s.cfg.Decodes, s.cfg.Answer = t.decodes, &config.Answer{Pattern: verdictPattern}
	s.cfg.Rollout = &config.Rollout{Seed: t.seed, Prompt: "{guidance}|{content}"}
	s.cfg.Runner = &config.Runner{RolloutBatchSize: t.batch, Parallelism: r.intN("parallelism", 5)}
	s.cfg.Dedupe = config.Dedupe{}
	var b bytes.Buffer
	seen := map[string]bool{}
	for n := range r.intN("tickets", 40) {
		one := ticket{group: fmt.Sprint("g", r.intN("group", 30)), label: string("0123456789abc-"[r.intN("label", 14)]),
			content: fmt.Sprintf("case %d%s", n, s.words())}
		if one.label == "-" {
			one.label = ""
		}
		switch r.intN("ticket", 12) {
		case 0:
			one.content = refusedPrompt
		case 1:
			b.WriteString("no ticket\n")
			t.refused++
			continue
		}
		fmt.Fprintf(&b, "{\"group_id\":%q,\"mission\":\"m\",\"content\":%q,\"label\":%q}\n", one.group, one.content,
			one.label)
		if seen[one.group+"/"+one.label] {
			t.refused++
			continue
		}
		seen[one.group+"/"+one.label] = true
		t.all = append(t.all, one)
	}
	s.files, s.inputs = []file{{key: "prompts/tickets.jsonl", bytes: b.Bytes()}}, 1
}

func (t *tickets) members() (n int) {
	for _, d := range t.decodes {
		n += max(1, d.Samples)
	}
	return n
}

// batchLines returns what the kind must have appended as that input, behind index items.
func (s *scenario) batchLines(m record.Manifest, input int, index uint64, st run.State) (f file) {
	t := s.tickets
	from := (input - 1) * t.batch
	if from >= len(t.all) || st.Reason != run.ReasonDone && index >= st.Items {
		return f
	}
	f.key = m.InputName(input)
	order := identity.Order(uint64(t.seed), 0, len(t.all))
	for _, n := range order[from:min(from+t.batch, len(order))] {
		for d, decode := range t.decodes {
			for sample := range max(1, decode.Samples) {
				l := line{number: len(f.lines) + 1, id: fmt.Sprintf("t%d.e0.d%d.s%d", n, d, sample)}
				if t.all[n].content == refusedPrompt {
					l.class = fault.Refused
				}
				l.bytes = fmt.Appendf(nil, `{"id":%q,"messages":[{"role":"user","content":"S\n\n1. a\n2. b|%s"}],`+
					`"ticket_number":%d,"ticket":{"group_id":%q,"mission":"m","label":%q},"epoch":0,"batch":%d,"step":0,`+
					`"decode":%d,"sample":%d,"seed":%d}`, l.id, t.all[n].content, n, t.all[n].group, t.all[n].label, input-1, d,
					sample, t.seedOf(n, d, sample))
				f.lines = append(f.lines, l)
			}
		}
	}
	return f
}

// seedOf returns the seed of a member: see package rollout.
func (t *tickets) seedOf(n, decode, sample int) int64 {
	if s := t.decodes[decode].Seed; s != nil {
		return *s + int64(sample)
	}
	key := identity.Content(fmt.Appendf(nil, "[%q,%q]", t.all[n].group, t.all[n].label))
	b := binary.LittleEndian.AppendUint64(nil, uint64(t.seed))
	b = binary.LittleEndian.AppendUint32(append(b, key[:]...), uint32(decode))
	sum := identity.Content(binary.LittleEndian.AppendUint32(b, uint32(sample)))
	return int64(binary.LittleEndian.Uint32(sum[:4]) & (1<<31 - 1))
}

// memberRow is what the check reads of a row of an artifact.
type memberRow struct {
	ID, Cause, Verdict, Group string
	Selected                  bool
	Batch, Step               int
}

// checkRollout checks the files of a rollout against its rows: every member of what was
// dispatched is one trajectory or one failure (I1), in its order (I4), and all members of a
// batch saw one step of the guidance (I6).
func (s *scenario) checkRollout(ctx context.Context, completions, failed [][]byte, sum record.Summary) {
	t := s.tickets
	if t == nil {
		return
	}
	verdicts := map[string]string{} // by member: "" is an answer without one
	pattern := regexp.MustCompile(verdictPattern)
	for _, row := range completions {
		var c struct{ ID, Completion string }
		s.decode(row, &c)
		if verdicts[c.ID] = ""; pattern.MatchString(c.Completion) {
			all := pattern.FindAllStringSubmatch(c.Completion, -1)
			verdicts[c.ID] = all[len(all)-1][1]
		}
	}
	want, refused := len(completions)+len(failed), 0
	steps, votes, selected := map[int]int{}, map[string]map[string]int{}, map[string]string{}
	causes := map[string]int{}
	for _, name := range []string{rollout.TrajectoriesFile, rollout.FailuresFile} {
		last := -1
		for _, raw := range split(s.object(ctx, record.OutputKey(s.id, name))) {
			var r memberRow
			if s.decode(raw, &r); r.ID == "" {
				refused++
				continue
			}
			want--
			verdict, answered := verdicts[r.ID]
			if ok := answered && verdict != ""; ok != (name == rollout.TrajectoriesFile) || ok && r.Verdict != verdict {
				s.audit.breakf("I1: %s has %s, and the verdict of its answer is %q", name, raw, verdict)
			}
			if r.Cause != "" {
				causes[r.Cause]++
			}
			if step, ok := steps[r.Batch]; ok && step != r.Step {
				s.audit.breakf("I6: in batch %d one member saw step %d, and another one %d", r.Batch, step, r.Step)
			}
			if steps[r.Batch] = r.Step; r.Batch < last {
				s.audit.breakf("I4: %s has batch %d after batch %d", name, r.Batch, last)
			}
			last = r.Batch
			of, _, _ := strings.Cut(r.ID, ".")
			if votes[of] == nil {
				votes[of] = map[string]int{}
			}
			if r.Verdict != "" {
				votes[of][r.Verdict]++
			}
			if r.Selected {
				selected[of] += r.Verdict
			}
		}
	}
	if want != 0 {
		s.audit.breakf("I1: %d members are in no file of the rollout", want)
	}
	s.checkSelections(votes, selected)
	out := sum.Rollout
	if out == nil || len(votes) > 0 && (out.Refused != t.refused || refused != t.refused) || out.Tickets != len(votes) ||
		fmt.Sprint(out.Failed) != fmt.Sprint(causes) && len(causes) > 0 {
		s.audit.breakf("the summary has %+v; %d tickets were answered, %d lines are invalid, failed are %v", out,
			len(votes), t.refused, causes)
	}
	if n := len(split(s.object(ctx, record.OutputKey(s.id, rollout.SelectionsFile)))); n != len(votes) {
		s.audit.breakf("%d tickets have %d selections", len(votes), n)
	}
	if (len(completions)+len(failed))%t.members() != 0 {
		s.audit.breakf("I1: %d members do not make whole tickets", len(completions)+len(failed))
	}
}

// checkSelections checks that a verdict with the most votes is selected, once, of each
// ticket that has one.
func (s *scenario) checkSelections(votes map[string]map[string]int, selected map[string]string) {
	for of, counts := range votes {
		most := 0
		for _, n := range counts {
			most = max(most, n)
		}
		if got := selected[of]; counts[got] != most || (got == "") != (most == 0) {
			s.audit.breakf("ticket %s has the votes %v, and %q is selected", of, counts, got)
		}
	}
}

func (s *scenario) decode(row []byte, into any) {
	if err := json.Unmarshal(row, into); err != nil {
		s.t.Fatalf("seed %d: %v in %s", s.seed, err, row)
	}
}
