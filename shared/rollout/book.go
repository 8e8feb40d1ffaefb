package rollout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"

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

// Refused is an invalid line of the input.
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
	Refused int `json:"refused"` // invalid lines
	// Pools are the tickets of each mission that are set aside, in a run that reflects.
	Pools map[string]Pools `json:"pools,omitempty"`
}

// FirstRefused reads the first invalid lines of a run's input from its book, at most n.
func FirstRefused(ctx context.Context, blobs blob.Store, run identity.RunID, n int) (out []Refused, err error) {
	r, _, err := blobs.Get(ctx, refusedKey(run), blob.GetOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for d := json.NewDecoder(r); len(out) < n; {
		var one Refused
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return out, fault.WithKind(fault.Corrupt, err, "read the refused lines of run %s", run)
		}
		out = append(out, one)
	}
	return out, nil
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
	i := importer{run: m, checker: c, limit: config.MaxTickets,
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
	answered, aside, err := i.setAside(&b)
	if err != nil {
		return b, err
	}
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

// importer reads the lines of a run's input.
type importer struct {
	run     record.Manifest
	checker *checker
	limit   int                           // of tickets
	keys    map[identity.ContentID]uint64 // the line of each ticket
	places  []place
	facts   []facts // of the tickets
	at      uint64  // the length of what is written
	refused bytes.Buffer
}

// facts are what decides whether a ticket is set aside.
type facts struct {
	mission uint16
	known   bool // its outcome: it has a label, or there are graders
	group   [16]byte
}

// maxRefused bounds what is kept about invalid lines, in bytes.
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
	t, err := ParseTicket(l.Bytes, i.run.Config.Missions)
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
		return fault.New(fault.Invalid, "%d bytes of messages about invalid lines: see line %d, %s",
			i.refused.Len(), r.Line, r.Message)
	}
	return nil
}
