package rollout

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/core/schedule"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/text"
)

// seedMask keeps seeds within 31 bits, which every server accepts.
const seedMask = 1<<31 - 1

// seedOf returns the seed of a member: that of its decode plus the number of the sample
// or, for a decode without a seed, the first 4 bytes, LE, of blake3(run seed u64 ‖ ticket
// key ‖ decode u32 ‖ sample u32), all LE, masked with 2³¹−1. Guidance and epoch do not
// count: two guidances are compared on the same draws.
func seedOf(c config.Run, ticket identity.ContentID, decode, sample int) int64 {
	if s := c.DecodesOf()[decode].Seed; s != nil {
		return (*s + int64(sample)) & seedMask
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(c.RolloutOf().Seed))
	b = append(b, ticket[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(decode))
	b = binary.LittleEndian.AppendUint32(b, uint32(sample))
	sum := identity.Content(b)
	return int64(binary.LittleEndian.Uint32(sum[:4]) & seedMask)
}

// asker writes the lines of a run's tickets.
type asker struct {
	config         config.Run
	system, prompt text.Template
	guidance       map[string]guidance.Guidance // by mission
}

func newAsker(c config.Run) *asker {
	r := c.RolloutOf()
	return &asker{config: c, system: text.ParseTemplate(r.System, config.TicketPlaces()),
		prompt: text.ParseTemplate(r.Prompt, config.TicketPlaces()), guidance: map[string]guidance.Guidance{}}
}

// asker returns an asker with the guidance of the stage.
func (s Stage) asker(ctx context.Context, blobs blob.Store, m record.Manifest) (*asker, error) {
	a := newAsker(m.Config)
	for _, mission := range m.Config.Missions {
		g, err := readGuidance(ctx, blobs, m.Run, mission.Name, s.Guidance[mission.Name])
		if err != nil {
			return nil, err
		}
		a.guidance[mission.Name] = g
	}
	return a, nil
}

// values returns what the placeholders of a ticket's messages stand for.
func (a *asker) values(t Ticket) map[string]string {
	return map[string]string{config.PlaceGuidance: a.guidance[t.Mission].Text(), config.PlaceContent: t.Content,
		config.PlaceMission: t.Mission}
}

// messages returns the JSON of the messages that ask about a ticket.
func (a *asker) messages(t Ticket) []byte {
	values := a.values(t)
	b := []byte{'['}
	if a.config.RolloutOf().System != "" {
		b = append(b, `{"role":"system","content":`...)
		b = append(jsonl.AppendQuoted(b, a.system.Render(values)), '}')
	}
	if t.Messages != nil {
		own := bytes.TrimSuffix(bytes.TrimPrefix(t.Messages, []byte("[")), []byte("]"))
		if len(b) > 1 && len(own) > 0 {
			b = append(b, ',')
		}
		return append(append(b, own...), ']')
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `{"role":"user","content":`...)
	return append(jsonl.AppendQuoted(b, a.prompt.Render(values)), '}', ']')
}

// lineTail are the members of a line beside its request.
type lineTail struct {
	Number uint32          `json:"ticket_number"`
	Ticket json.RawMessage `json:"ticket"`
	Epoch  int             `json:"epoch"`
	Batch  int             `json:"batch"`
	Step   int             `json:"step"` // of the guidance
	Decode int             `json:"decode"`
	Sample int             `json:"sample"`
	Seed   int64           `json:"seed"`
}

// params are the sampling params of a decode, as members of a line.
type params struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	MaxTokens   *int     `json:"max_tokens,omitempty"`
	Stop        []string `json:"stop,omitempty"`
}

// ticketID returns the name of a ticket in ids and as evidence. Example: "t17".
func ticketID(number uint32) string { return "t" + decimal(uint64(number)) }

// ask yields the lines of a ticket: one a member, by decode and sample. A line is valid
// until the next one is yielded. The mark says in their ids what they are asked for.
// Example: "t17.e0.d0.s1", of epoch 0.
func (a *asker) ask(mark string, s Stage, t ticketAt) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		messages, k := a.messages(t.Ticket), t.Key()
		head := fmt.Sprintf(`{"id":"%s.%s.`, ticketID(t.number), mark) // of text that needs no escapes
		of := fmt.Appendf(nil, `"ticket_number":%d,"ticket":%s,"epoch":%d,"batch":%d,"step":%d`, t.number, t.Rest, s.Epoch,
			s.Batch, a.guidance[t.Mission].Step)
		var line []byte
		for d, decode := range a.config.DecodesOf() {
			own := encode(params{decode.Temperature, decode.TopP, decode.MaxTokens, decode.Stop})
			for sample := range decode.Count() {
				line = fmt.Appendf(line[:0], `%sd%d.s%d","messages":%s`, head, d, sample, messages)
				if len(own) > 2 {
					line = append(append(line, ','), own[1:len(own)-1]...)
				}
				line = append(append(line, ','), of...)
				line = fmt.Appendf(line, ",\"decode\":%d,\"sample\":%d,\"seed\":%d}\n", d, sample,
					seedOf(a.config, k, d, sample))
				if !yield(line) {
					return
				}
			}
		}
	}
}

// write writes the lines of a part of a list of tickets.
func (a *asker) write(ctx context.Context, blobs blob.Store, m record.Manifest, w io.Writer, of tickets) error {
	return a.writeTickets(w, of.stage, of.mark, ticketsOf(ctx, blobs, m, of.list, of.Span))
}

// writeTickets writes the lines of tickets, which a stage asks about under that mark.
func (a *asker) writeTickets(w io.Writer, s Stage, mark string, of iter.Seq2[ticketAt, error]) error {
	for t, err := range of {
		if err != nil {
			return err
		}
		for line := range a.ask(mark, s, t) {
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// tickets are a part of a list of tickets that a stage asks about.
type tickets struct {
	stage Stage
	list  string // its key
	mark  string // in the ids
	Span
}

// Shards returns how many items each shard of the stage has: nil leaves it to the plan. The
// tickets of a batch or a comparison are divided by the paper's formula over
// runner.parallelism, or over as many shards as it takes for at most itemsOfShard answers in
// each: who is alive does not count. A share that is larger than a shard may be is divided
// further. The prompts of a reflection are few and their answers long: shards of
// promptsOfShard keep up to eight workers busy with the largest reflection, and in clouds a
// prompt costs no message and no object of its own.
func (s Stage) Shards(c config.Run) (items []int) {
	if s.Kind == Ending {
		return nil
	}
	if s.Kind.Role() == RoleReflect {
		for _, share := range schedule.Cut(s.Items, ceil(s.Items, promptsOfShard)) {
			items = append(items, share.Hi-share.Lo)
		}
		return items
	}
	tickets, over := s.To-s.From, c.RunnerOf().Parallelism
	if s.Kind != Answering {
		tickets = s.Items / s.Members
	}
	if over == 0 {
		over = ceil(tickets, max(1, itemsOfShard/s.Members))
	}
	for _, share := range schedule.Cut(tickets, over) {
		size := share.Hi - share.Lo
		for _, part := range schedule.Cut(size, ceil(size, max(1, maxItemsOfShard/s.Members))) {
			if part.Hi > part.Lo {
				items = append(items, (part.Hi-part.Lo)*s.Members)
			}
		}
	}
	return items
}

const (
	itemsOfShard    = 256
	maxItemsOfShard = 4096
	promptsOfShard  = 4
)

func ceil(a, b int) int { return (a + b - 1) / b }

// seedOfStage returns the seed of an item of a reflection, or of its comparison.
func seedOfStage(c config.Run, number int, kind StageKind, item int) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(c.RolloutOf().Seed))
	b = binary.LittleEndian.AppendUint64(append(b, kind...), uint64(number))
	sum := identity.Content(binary.LittleEndian.AppendUint64(b, uint64(item)))
	return binary.LittleEndian.Uint64(sum[:8]) & seedMask
}
