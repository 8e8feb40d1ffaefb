package rollout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// The book of a run is its tickets as they were at the first batch: from then on the run
// needs its input no more. It has three objects, written in this order, create-only:
//
//	tickets  the valid lines as they are
//	refused  a Refused for each other line
//	order    a record for each ticket, in the order of the epoch: see place

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

// Book says what the book of a run has.
type Book struct {
	Tickets int
	Refused int // lines that are no tickets
}

// Import writes the book of a run from its pinned input, unless it exists. A missing or
// changed input is the error of package input. More than config.MaxTickets are Invalid.
func Import(ctx context.Context, blobs blob.Store, m record.Manifest, from record.Ranges) (Book, error) {
	c, err := newChecker(m.Config)
	if err != nil {
		return Book{}, err
	}
	i := importer{missions: m.Config.Missions, checker: c, limit: config.MaxTickets, keys: map[identity.ContentID]uint64{}}
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
	var order []byte
	for _, n := range identity.Order(uint64(m.Config.RolloutOf().Seed), 0, len(i.places)) {
		order = i.places[n].append(order)
	}
	b := Book{Tickets: len(i.places), Refused: bytes.Count(i.refused.Bytes(), []byte{'\n'})}
	return b, create(ctx, blobs, orderKey(m.Run), order)
}

// importer reads the lines of a run's input.
type importer struct {
	missions []config.Mission
	checker  *checker
	limit    int                           // of tickets
	keys     map[identity.ContentID]uint64 // the line of each ticket
	places   []place
	at       uint64 // the length of what is written
	refused  bytes.Buffer
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

// ticketsOf yields the tickets [from, to) of the run's order.
func ticketsOf(ctx context.Context, blobs blob.Store, m record.Manifest, from, to int) iter.Seq2[ticketAt, error] {
	return func(yield func(ticketAt, error) bool) {
		for ; from < to; from += placesAtOnce {
			places, err := placesOf(ctx, blobs, m, from, min(to, from+placesAtOnce))
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

// placesOf reads the places [from, to) of the run's order.
func placesOf(ctx context.Context, blobs blob.Store, m record.Manifest, from, to int) ([]place, error) {
	b, err := input.ReadPart(ctx, blobs, orderKey(m.Run), int64(from)*placeSize, int64(to-from)*placeSize)
	if err != nil {
		return nil, err
	}
	if len(b) != (to-from)*placeSize {
		return nil, fault.New(fault.Corrupt, "the order of the tickets of run %s ends within ticket %d", m.Run,
			from+len(b)/placeSize)
	}
	out := make([]place, to-from)
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
