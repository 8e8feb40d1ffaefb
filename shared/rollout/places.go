package rollout

import (
	"context"
	"encoding/binary"
	"iter"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

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

func appendPlaces(dst []byte, ps []place) []byte {
	for _, p := range ps {
		dst = p.append(dst)
	}
	return dst
}

const (
	// ticketsAtOnce is how many tickets are read at once, and bytesAtOnce bounds their
	// lines in bytes, but for a longer one. A remote store answers concurrent requests
	// faster than one after another.
	ticketsAtOnce = 16
	bytesAtOnce   = 16 << 20
	placesAtOnce  = 4096 // are in memory
)

// ticketAt is a ticket with its place.
type ticketAt struct {
	Ticket
	place
}

// ticketsOf yields the tickets of a part of a list of places: the order or the pool.
func ticketsOf(ctx context.Context, blobs blob.Store, m record.Manifest, list string,
	s Span) iter.Seq2[ticketAt, error] {
	return func(yield func(ticketAt, error) bool) {
		for from := s.From; from < s.To; from += placesAtOnce {
			places, err := placesOf(ctx, blobs, list, Span{from, min(s.To, from+placesAtOnce)})
			if err != nil {
				yield(ticketAt{}, err)
				return
			}
			for t, err := range ticketsIn(ctx, blobs, m, places) {
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}

// ticketsIn yields the tickets at these places.
func ticketsIn(ctx context.Context, blobs blob.Store, m record.Manifest, places []place) iter.Seq2[ticketAt, error] {
	return func(yield func(ticketAt, error) bool) {
		for left := places; len(left) > 0; {
			n := together(left)
			tickets, err := readTickets(ctx, blobs, m, left[:n])
			if err != nil {
				yield(ticketAt{}, err)
				return
			}
			for _, t := range tickets {
				if !yield(t, nil) {
					return
				}
			}
			left = left[n:]
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
			out[n].place = p
			return fault.Wrap(err, "ticket %d", p.number)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}
