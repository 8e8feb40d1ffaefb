package rollout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// The book of a run is its tickets as they were at the first batch: from then on the run
// needs its input no more. It has these objects, written in this order, create-only:
//
//	tickets  the valid lines as they are
//	refused  a Refused for each other line
//	guidance step 0 of each mission
//	pool     a record for each ticket that is set aside, by Pools: see place
//	order    a record for each other ticket, in the order of epoch 0, then of epoch 1, …

// place is where a ticket stands: a record of the order, of placeSize bytes, all LE.
type place struct {
	offset uint64 // of its line, in tickets
	length uint32 // of its line
	number uint32 // of the ticket, from 0, in the order of the input
}

const placeSize = 16

func (p place) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, p.offset)
	dst = binary.LittleEndian.AppendUint32(dst, p.length)
	return binary.LittleEndian.AppendUint32(dst, p.number)
}

func readPlace(b []byte) place {
	return place{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])}
}

// Refused is a line of the input that is no ticket.
type Refused struct {
	Line    uint64      `json:"line"` // from 1
	Group   string      `json:"group_id,omitempty"`
	Cause   fault.Class `json:"cause"`
	Message string      `json:"message"`
}

// key returns the key of an object of the run's book, or of one of its stages.
func key(run identity.RunID, name string) string {
	return record.WorkPrefix + string(run) + "/rollout/" + name
}

func ticketsKey(run identity.RunID) string { return key(run, "tickets.jsonl") }
func refusedKey(run identity.RunID) string { return key(run, "refused.jsonl") }
func orderKey(run identity.RunID) string   { return key(run, "order") }
func poolKey(run identity.RunID) string    { return key(run, "pool") }

// Book says what the book of a run has.
type Book struct {
	Tickets int `json:"tickets"` // of an epoch
	Refused int `json:"refused"` // lines that are no tickets
	// Pools are the tickets of each mission that are set aside, in a run that reflects.
	Pools map[string]Pools `json:"pools,omitempty"`
}

// Pools are the tickets of a mission that no epoch answers: positions in the book's pool.
type Pools struct {
	Gate    Span `json:"gate"`
	Confirm Span `json:"confirm"`
	Holdout Span `json:"holdout"`
	// Known is how many tickets of the mission have a known outcome.
	Known int `json:"known"`
}

// maxOrder bounds the tickets of all epochs.
const maxOrder = 16_000_000

// Import writes the book of a run from its pinned input, unless it exists. A missing or
// changed input is the error of package input. More than config.MaxTickets are Invalid.
func Import(ctx context.Context, blobs blob.Store, m record.Manifest, from record.Ranges) (Book, error) {
	c, err := newChecker(m.Config)
	if err != nil {
		return Book{}, err
	}
	i := importer{run: m, missions: m.Config.Missions, checker: c, limit: config.MaxTickets,
		keys: map[identity.ContentID]uint64{}}
	err = stream(ctx, blobs, ticketsKey(m.Run), func(w io.Writer) error {
		r, err := input.OpenPinned(ctx, blobs, from.Key, blob.GetOptions{Version: from.Version})
		if err != nil {
			return err
		}
		defer r.Close()
		return i.read(ctx, r, w)
	})
	if err != nil {
		return Book{}, fault.Wrap(err, "read the tickets")
	}
	if err := create(ctx, blobs, refusedKey(m.Run), i.refused.Bytes()); err != nil {
		return Book{}, err
	}
	for _, mission := range m.Config.Missions {
		g, err := guidance.New(mission.Name, mission.Scaffold, mission.Entries)
		if err == nil {
			err = saveGuidance(ctx, blobs, m.Run, g)
		}
		if err != nil {
			return Book{}, err
		}
	}
	b := Book{Refused: bytes.Count(i.refused.Bytes(), []byte{'\n'})}
	answered, aside := i.setAside(&b)
	if err := create(ctx, blobs, poolKey(m.Run), appendPlaces(nil, aside)); err != nil {
		return b, err
	}
	epochs := m.Config.RolloutOf().Epochs
	if b.Tickets = len(answered); b.Tickets*epochs > maxOrder {
		return b, fault.New(fault.Invalid, "%d epochs of %d tickets are more than %d: lower rollout.epochs, or "+
			"split the file", epochs, b.Tickets, maxOrder)
	}
	return b, stream(ctx, blobs, orderKey(m.Run), func(w io.Writer) error {
		for e := range epochs {
			ordered := make([]place, 0, len(answered))
			for _, n := range identity.Order(uint64(m.Config.RolloutOf().Seed), uint64(e), len(answered)) {
				ordered = append(ordered, answered[n])
			}
			if _, err := w.Write(appendPlaces(nil, ordered)); err != nil {
				return err
			}
		}
		return nil
	})
}

func appendPlaces(dst []byte, ps []place) []byte {
	for _, p := range ps {
		dst = p.append(dst)
	}
	return dst
}

// setAside divides the tickets into those that epochs answer and those that are set aside,
// and notes the latter in the book. Tickets of one group stay together, so that what is
// learnt from one is not measured on another: a group is set aside only if the outcomes of
// all its tickets are known. A mission whose tickets do not fill both comparisons has none.
func (i *importer) setAside(b *Book) (answered, aside []place) {
	c := i.run.Config
	if c.Reflection == nil {
		return i.places, nil
	}
	b.Pools = map[string]Pools{}
	taken := make([]bool, len(i.places))
	put := func(tickets []int) Span {
		from := len(aside)
		for _, t := range tickets {
			aside, taken[t] = append(aside, i.places[t]), true
		}
		return Span{from, len(aside)}
	}
	for n, mission := range c.Missions {
		rest, known := i.whole(n)
		p, g := Pools{Known: known}, c.GateOf()
		half, need := int(g.Share*float64(known)/2), ruleOf(c, c.Reflection.Candidates, 0).MinTickets()
		if c.Gated() && half >= need {
			gate, left := i.cutGroups(rest, half)
			confirm, left := i.cutGroups(left, half)
			if len(confirm) >= need {
				p.Gate, p.Confirm, rest = put(gate), put(confirm), left
			}
		}
		holdout, _ := i.cutGroups(rest, int(g.HoldoutShare*float64(known)))
		p.Holdout = put(holdout)
		b.Pools[mission.Name] = p
	}
	for t, p := range i.places {
		if !taken[t] {
			answered = append(answered, p)
		}
	}
	return answered, aside
}

// whole returns the tickets of a mission's groups of which all outcomes are known, in an
// order that the seed decides, group by group; and how many outcomes are known.
func (i *importer) whole(mission int) (tickets []int, known int) {
	open := map[[16]byte]bool{}
	for _, of := range i.facts {
		if int(of.mission) == mission && !of.known {
			open[of.group] = true
		}
	}
	for t, of := range i.facts {
		if int(of.mission) != mission || !of.known {
			continue
		}
		known++
		if !open[of.group] {
			tickets = append(tickets, t)
		}
	}
	slices.SortFunc(tickets, func(x, y int) int {
		return cmp.Or(bytes.Compare(i.facts[x].group[:], i.facts[y].group[:]), cmp.Compare(x, y))
	})
	return tickets, known
}

// cutGroups divides tickets in the order of whole into the first ones, at least count if
// there are so many, and the rest, between two groups.
func (i *importer) cutGroups(tickets []int, count int) (first, rest []int) {
	count = min(count, len(tickets))
	for 0 < count && count < len(tickets) && i.facts[tickets[count-1]].group == i.facts[tickets[count]].group {
		count++
	}
	return tickets[:count], tickets[count:]
}

// importer reads the lines of a run's input.
type importer struct {
	run      record.Manifest
	missions []config.Mission
	checker  *checker
	limit    int                           // of tickets
	keys     map[identity.ContentID]uint64 // the line of each ticket
	places   []place
	facts    []facts // of the tickets
	at       uint64  // the length of what is written
	refused  bytes.Buffer
}

// facts are what decides whether a ticket is set aside.
type facts struct {
	mission uint16
	known   bool // its outcome: it has a label, or there are graders
	group   [16]byte
}

// maxRefused bounds what is kept about lines that are no tickets, in bytes.
const maxRefused = 64 << 20

// checkEvery is how many lines are read between checks of the context.
const checkEvery = 1024

func (i *importer) read(ctx context.Context, r io.Reader, w io.Writer) error {
	lines := jsonl.NewScanner(r, jsonl.Options{})
	for n := uint64(1); ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if l.Blank {
			continue
		}
		if err := i.line(n, l, w); err != nil {
			return err
		}
	}
}

// line takes in a line: as a ticket, or as one that is refused.
func (i *importer) line(n uint64, l jsonl.Line, w io.Writer) error {
	if l.TooLong {
		return i.refuse(Refused{n, "", fault.InvalidLine, "the line is longer than 16 MiB"})
	}
	t, err := ParseTicket(l.Bytes, i.missions)
	if err == nil {
		err = i.checker.check(t)
	}
	if err != nil {
		return i.refuse(Refused{n, t.Group, cmp.Or(fault.ClassOf(err), fault.InvalidLine), err.Error()})
	}
	k := t.Key()
	if first, dup := i.keys[k]; dup {
		return i.refuse(Refused{n, t.Group, fault.DuplicateID, "line " + decimal(first) + " has the same group_id and label"})
	}
	if len(i.places) == i.limit {
		return fault.New(fault.Invalid, "line %d is one of more than %d tickets, the most of a run: split the file",
			n, i.limit)
	}
	i.keys[k] = n
	i.places = append(i.places, place{i.at, uint32(len(l.Bytes)), uint32(len(i.places))})
	c := i.run.Config
	mission := slices.IndexFunc(c.Missions, func(m config.Mission) bool { return m.Name == t.Mission })
	group := identity.Content(binary.LittleEndian.AppendUint64([]byte(t.Group), uint64(c.RolloutOf().Seed)))
	i.facts = append(i.facts, facts{uint16(mission), t.Label != "" || len(c.Grades) > 0, [16]byte(group[:16])})
	i.at += uint64(len(l.Bytes)) + 1
	if _, err := w.Write(l.Bytes); err != nil {
		return err
	}
	_, err = w.Write([]byte{'\n'})
	return err
}

func (i *importer) refuse(r Refused) error {
	i.refused.Write(append(encode(r), '\n'))
	if i.refused.Len() > maxRefused {
		return fault.New(fault.Invalid, "%d bytes of messages about lines that are no tickets: see line %d, %s",
			i.refused.Len(), r.Line, r.Message)
	}
	return nil
}

const (
	// ticketsAtOnce is how many tickets are read at once, and bytesAtOnce bounds their
	// lines in bytes, but for a longer one. A remote store answers concurrent requests
	// faster than one after another.
	ticketsAtOnce = 16
	bytesAtOnce   = 16 << 20
	placesAtOnce  = 4096 // are in memory
)

// ticketAt is a ticket with its number.
type ticketAt struct {
	Ticket
	number uint32
}

// ticketsOf yields the tickets of a part of a list of places: the order or the pool.
func ticketsOf(ctx context.Context, blobs blob.Store, m record.Manifest, list string,
	s Span) iter.Seq2[ticketAt, error] {
	return func(yield func(ticketAt, error) bool) {
		for from := s.From; from < s.To; from += placesAtOnce {
			places, err := placesOf(ctx, blobs, list, Span{from, min(s.To, from+placesAtOnce)})
			for err == nil && len(places) > 0 {
				n := together(places)
				var tickets []ticketAt
				tickets, err = readTickets(ctx, blobs, m, places[:n])
				for _, t := range tickets {
					if !yield(t, nil) {
						return
					}
				}
				places = places[n:]
			}
			if err != nil {
				yield(ticketAt{}, err)
				return
			}
		}
	}
}

// placesOf reads a part of a list of places.
func placesOf(ctx context.Context, blobs blob.Store, list string, s Span) ([]place, error) {
	b, err := input.ReadPart(ctx, blobs, list, int64(s.From)*placeSize, int64(s.Len())*placeSize)
	if err != nil {
		return nil, err
	}
	out := make([]place, s.Len())
	for n := range out {
		out[n] = readPlace(b[n*placeSize:])
	}
	return out, nil
}

// together returns how many of the places, at least one, are read at once.
func together(places []place) (n int) {
	size := 0
	for n < min(len(places), ticketsAtOnce) && (n == 0 || size+int(places[n].length) <= bytesAtOnce) {
		size += int(places[n].length)
		n++
	}
	return n
}

// readTickets reads the tickets at these places.
func readTickets(ctx context.Context, blobs blob.Store, m record.Manifest, places []place) ([]ticketAt, error) {
	out := make([]ticketAt, len(places))
	group, ctx := errgroup.WithContext(ctx)
	for n, p := range places {
		group.Go(func() error {
			line, err := input.ReadPart(ctx, blobs, ticketsKey(m.Run), int64(p.offset), int64(p.length))
			if err == nil {
				out[n].Ticket, err = ParseTicket(line, m.Config.Missions)
			}
			out[n].number = p.number
			return fault.Wrap(err, "ticket %d", p.number)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// guidanceKey returns the key of a step of a mission's guidance.
func guidanceKey(run identity.RunID, mission string, step int) string {
	return key(run, fmt.Sprintf("guidance/%s/%06d.json", mission, step))
}

// saveGuidance writes a step of a mission's guidance, create-only. A step that exists with
// other bytes is a Conflict: another step was made from the one before (I7).
func saveGuidance(ctx context.Context, blobs blob.Store, run identity.RunID, g guidance.Guidance) error {
	at, b := guidanceKey(run, g.Mission, g.Step), g.Encode()
	_, err := blobs.Put(ctx, at, bytes.NewReader(b), blob.PutOptions{CreateOnly: true})
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	have, err := input.ReadObject(ctx, blobs, at, maxStage)
	if err == nil && !bytes.Equal(have, b) {
		err = fault.New(fault.Conflict, "step %d of the guidance of %s exists with another content", g.Step, g.Mission)
	}
	return err
}

// readGuidance reads a step of a mission's guidance.
func readGuidance(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, step int) (
	guidance.Guidance, error) {
	b, err := input.ReadObject(ctx, blobs, guidanceKey(run, mission, step), maxStage)
	if err != nil {
		return guidance.Guidance{}, err
	}
	return guidance.Decode(b)
}
