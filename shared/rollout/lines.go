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
	guidance       map[string]string
}

func newAsker(c config.Run) *asker {
	r := c.RolloutOf()
	a := &asker{config: c, system: text.ParseTemplate(r.System, config.TicketPlaces()),
		prompt: text.ParseTemplate(r.Prompt, config.TicketPlaces()), guidance: map[string]string{}}
	for _, m := range c.Missions {
		a.guidance[m.Name] = guidanceOf(c, m.Name)
	}
	return a
}

// values returns what the placeholders of a ticket's messages stand for.
func (a *asker) values(t Ticket) map[string]string {
	return map[string]string{config.PlaceGuidance: a.guidance[t.Mission], config.PlaceContent: t.Content,
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

// member identifies an answer of a ticket. Example of its id: "t17.e0.d0.s1".
type member struct {
	ticket                uint32
	epoch, decode, sample int
}

func (m member) id() string {
	return fmt.Sprintf("t%d.e%d.d%d.s%d", m.ticket, m.epoch, m.decode, m.sample)
}

// lineTail are the members of a line beside its request.
type lineTail struct {
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

// ask yields the lines of a ticket: one a member, by decode and sample. A line is valid
// until the next one is yielded.
func (a *asker) ask(s Stage, t ticketAt) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		messages, k := a.messages(t.Ticket), t.Key()
		var line []byte
		for d, decode := range a.config.DecodesOf() {
			own := encode(params{decode.Temperature, decode.TopP, decode.MaxTokens, decode.Stop})
			for sample := range decode.Count() {
				id := member{t.number, s.Epoch, d, sample}.id()
				line = jsonl.AppendString(append(line[:0], `{"id":`...), id)
				line = append(append(line, `,"messages":`...), messages...)
				if len(own) > 2 {
					line = append(append(line, ','), own[1:len(own)-1]...)
				}
				tail := encode(lineTail{Ticket: t.Rest, Epoch: s.Epoch, Batch: s.Batch, Step: s.Guidance[t.Mission],
					Decode: d, Sample: sample, Seed: seedOf(a.config, k, d, sample)})
				if line = append(append(append(line, ','), tail[1:]...), '\n'); !yield(line) {
					return
				}
			}
		}
	}
}

// Write saves the stage, and then writes the lines of its batch to w.
func (s Stage) Write(ctx context.Context, blobs blob.Store, m record.Manifest, w io.Writer) error {
	if err := s.save(ctx, blobs, m.Run); err != nil {
		return err
	}
	a := newAsker(m.Config)
	for t, err := range ticketsOf(ctx, blobs, m, s.From, s.To) {
		if err != nil {
			return err
		}
		for line := range a.ask(s, t) {
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// Shards returns how many items each shard of the batch has. The tickets are divided by
// the paper's formula over runner.parallelism, or over as many shards as it takes for at
// most itemsOfShard answers in each: who is alive does not count. A share that is larger
// than a shard may be is divided further.
func (s Stage) Shards(c config.Run) (items []int) {
	tickets, over := s.To-s.From, c.RunnerOf().Parallelism
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
)

func ceil(a, b int) int { return (a + b - 1) / b }
