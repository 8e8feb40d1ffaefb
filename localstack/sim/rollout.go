package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"rollout/localstack/rounds"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
)

// tickets are those of a rollout, and how they are asked about.
type tickets struct {
	all      []ticket // in the order of the input
	missions []string
	refused  int // invalid lines
	batch    int // how many a global batch has
	decodes  []config.Decode
	seed     int64
	pattern  string // finds verdicts in answers, of which some have none

	reflects  bool
	reflector string // the model that reflects, if the pool of judges has it; "" is the run's own
	// unfilled says that the gate needs more tickets than there are.
	unfilled  bool
	reference *reference // set once the run is checked
}

type ticket struct{ mission, group, label, content string }

// drawTickets draws whether the run is a rollout, as a tenth of all runs are; certainly
// decides it for all of them. Half of them reflect. The world of a rollout has none of the
// other plots that change what a run asks.
func (w *world) drawTickets(certainly bool) *tickets {
	if certainly {
		w.rounds, w.judged, w.judging, w.constraints, w.poison = 0, 0, false, constraints{}, noPoison
		w.limit.Amount = ratelimit.Amount{}
	}
	if w.rounds > 0 || w.judging || w.constraints.row > 0 || w.poison != noPoison ||
		w.limit.Amount != (ratelimit.Amount{}) || w.rand.intN("rollout", 4) == 3 && !certainly {
		return nil
	}
	t := &tickets{missions: []string{"m"}, batch: 1 + w.rand.intN("batch", 12), seed: int64(w.rand.intN("order", 1000)),
		pattern: `#([0-9a-c])`, reflects: w.rand.intN("reflects", 2) == 0}
	if !t.reflects {
		if w.http != nil {
			return nil
		}
		return t
	}
	if w.http == nil && w.rand.intN("reflector", 4) == 0 {
		t.reflector = rounds.JudgeModel
	}
	return t
}

// writeTickets draws the tickets of the rollout, and sets its config.
func (s *scenario) writeTickets() {
	r, t := s.rand, s.tickets
	t.decodes = []config.Decode{{Samples: 1 + r.intN("samples", 3)}}
	if seed := int64(r.intN("decode seed", 100)); r.intN("decodes", 2) == 0 {
		t.decodes = append(t.decodes, config.Decode{Seed: &seed, Samples: r.intN("samples", 3)})
	}
	s.cfg.Kind, s.cfg.Missions = config.KindRollout, []config.Mission{{Name: "m", Scaffold: "S", Entries: []string{"a",
		"b"}}}
	s.cfg.Decodes, s.cfg.Answer = t.decodes, &config.Answer{Pattern: t.pattern}
	s.cfg.Rollout = &config.Rollout{Seed: t.seed, Prompt: "{guidance}|{content}"}
	s.cfg.Runner = &config.Runner{RolloutBatchSize: t.batch, Parallelism: r.intN("parallelism", 5)}
	s.cfg.Dedupe = config.Dedupe{}
	if t.reflects {
		s.writeReflection()
		return
	}
	var b bytes.Buffer
	seen := map[string]bool{}
	for n := range r.intN("tickets", 40) {
		one := ticket{mission: "m", group: fmt.Sprint("g", r.intN("group", 30)),
			label: string("0123456789abc-"[r.intN("label", 14)]), content: fmt.Sprintf("case %d%s", n, s.words())}
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

// batchLines returns the lines that a rollout without reflection must have appended as that
// input.
func (t *tickets) batchLines(input int) (lines []line) {
	from := (input - 1) * t.batch
	if from >= len(t.all) {
		return nil
	}
	order := identity.Order(uint64(t.seed), 0, len(t.all))
	for _, n := range order[from:min(from+t.batch, len(order))] {
		for d, decode := range t.decodes {
			for sample := range max(1, decode.Samples) {
				l := line{number: len(lines) + 1, id: fmt.Sprintf("t%d.e0.d%d.s%d", n, d, sample)}
				if t.all[n].content == refusedPrompt {
					l.class = fault.Refused
				}
				l.bytes = fmt.Appendf(nil, `{"id":%q,"messages":[{"role":"user","content":"S\n\n1. a\n2. b|%s"}],`+
					`"ticket_number":%d,"ticket":{"group_id":%q,"mission":"m","label":%q},"epoch":0,"batch":%d,"step":0,`+
					`"decode":%d,"sample":%d,"seed":%d}`, l.id, t.all[n].content, n, t.all[n].group, t.all[n].label, input-1, d,
					sample, t.seedOf(n, d, sample))
				lines = append(lines, l)
			}
		}
	}
	return lines
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
