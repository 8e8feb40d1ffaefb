package diagnosis

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// foundLine is a line of a run's input that a user may mean.
type foundLine struct {
	place dialect.Place
	line  input.Line
}

// maxFound bounds how many lines with the same id are told.
const maxFound = 20

// itemRef is what a user calls an item, understood.
type itemRef struct {
	text  string
	item  *uint64 // "#12"
	input int     // of FILE:LINE
	line  uint64  // 0: it is an id
}

// parseItemRef understands what a user calls an item. What names no input is an id.
func parseItemRef(m record.Manifest, text string) itemRef {
	w := itemRef{text: text}
	if number, ok := strings.CutPrefix(text, "#"); ok {
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			w.item = &n
			return w
		}
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return w
	}
	line, err := strconv.ParseUint(text[i+1:], 10, 64)
	if err != nil || line == 0 {
		return w
	}
	for k, in := range m.Inputs {
		if file := text[:i]; file == in.Label() || file == in.Key || file == path.Base(in.Label()) || file == path.Base(in.Key) {
			w.input, w.line = k, line
			return w
		}
	}
	return w
}

// find returns the lines that are meant, in the order of the input. What is
// planned is found through the plan; the rest, and lines without an id of
// their own, by reading the input: its memory is bounded, its time is not.
func (x *Explainer) find(ctx context.Context, p status.Progress, w itemRef) ([]foundLine, error) {
	switch {
	case w.item != nil:
		loc, err := x.index.LocateItem(ctx, p.Manifest.Run, *w.item)
		if fault.Is(err, fault.NotFound) {
			return x.scan(ctx, p, 0, func(_ jsonl.Line, at dialect.Place) (hit, over bool) { return at.Item == *w.item, at.Item >= *w.item })
		}
		if err != nil {
			return nil, err
		}
		return x.lineOf(ctx, p, loc, func(l input.Line) bool { return l.Place.Item == *w.item })
	case w.line > 0:
		loc, err := x.index.LocateLine(ctx, p.Manifest.Run, w.input, w.line)
		if fault.Is(err, fault.NotFound) {
			return x.scan(ctx, p, w.input, func(_ jsonl.Line, at dialect.Place) (hit, over bool) { return at.Line == w.line, at.Line >= w.line })
		}
		if err != nil {
			return nil, err
		}
		return x.lineOf(ctx, p, loc, func(l input.Line) bool { return l.Place.Line == w.line })
	}
	out, sure, err := x.findPlanned(ctx, p, w.text)
	if err != nil || sure {
		return out, err
	}
	n := 0
	match := idMatcher(p.Manifest, w.text)
	return x.scan(ctx, p, 0, func(l jsonl.Line, at dialect.Place) (hit, over bool) {
		if hit = match(l, at); hit {
			n++
		}
		return hit, n == maxFound
	})
}

// findPlanned looks an id up in what the plan left. It is sure of what it finds
// and, once all is planned, that no line has the id; but not of item ids, nor
// where the plan's objects are gone.
func (x *Explainer) findPlanned(ctx context.Context, p status.Progress, id string) (out []foundLine, sure bool, err error) {
	if p.Plan.Total == 0 {
		return nil, false, nil
	}
	items, err := x.index.FindID(ctx, p.Manifest.Run, p.Plan, []byte(id), maxFound)
	if fault.Is(err, fault.NotFound) {
		return nil, false, nil
	}
	for _, item := range items {
		loc, err := x.index.LocateItem(ctx, p.Manifest.Run, item)
		if err != nil {
			return nil, false, err
		}
		lines, err := x.lineOf(ctx, p, loc, func(l input.Line) bool { return l.Place.Item == item })
		if err != nil {
			return nil, false, err
		}
		out = append(out, lines...)
	}
	return out, p.Plan.Complete() && (len(out) > 0 || !isItemID(id)), err
}

// isItemID reports whether the text may be an item id in hex.
func isItemID(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == hex.EncodedLen(len(identity.ContentID{}))
}

// lineOf reads the lines of a planned shard that match.
func (x *Explainer) lineOf(ctx context.Context, p status.Progress, loc input.Location, match func(input.Line) bool) ([]foundLine, error) {
	sh, err := x.index.LoadShard(ctx, p.Manifest, loc.Entry.Range, loc.Row)
	if err != nil {
		return nil, err
	}
	for _, l := range sh.Lines {
		if match(l) {
			return []foundLine{{l.Place, l}}, nil
		}
	}
	return nil, nil
}

// idMatcher matches lines by their own id or, where that is in hex, by the
// item id of lines that have none.
func idMatcher(m record.Manifest, text string) func(jsonl.Line, dialect.Place) bool {
	name, id := dialect.Name(m.Dialect), []byte(text)
	model, wantHex := modelOf(m), isItemID(text)
	return func(l jsonl.Line, at dialect.Place) bool {
		if bytes.Contains(l.Bytes, id) || bytes.IndexByte(l.Bytes, '\\') >= 0 { // it may be there escaped
			if got, ok := dialect.ScanID(name, l.Bytes); ok && bytes.Equal(got, id) {
				return true
			}
		}
		if !wantHex || l.Bytes == nil {
			return false
		}
		it, err := dialect.Parse(name, l.Bytes)
		return err == nil && it.ItemID(model, at.Item).String() == strings.ToLower(text)
	}
}

// modelOf is what item ids of the run are made of.
func modelOf(m record.Manifest) dialect.Model {
	id, _ := identity.ParseContentID(m.ModelID)
	return dialect.Model{URI: m.ModelURI, ID: id, Params: m.Config.Sampling.Canonical()}
}

// checkEvery is how many lines are read between looks at the context.
const checkEvery = 4096

// scan reads the run's input from the given file on, and returns the lines
// that match: hit. over ends the scan. Items are numbered only if it begins
// with the first file.
func (x *Explainer) scan(ctx context.Context, p status.Progress, from int, match func(jsonl.Line, dialect.Place) (hit, over bool)) (out []foundLine, err error) {
	var item uint64
	for k := from; k < len(p.Manifest.Inputs); k++ {
		r, err := x.openInput(ctx, p, k)
		if err != nil {
			return out, err
		}
		over, err := scanLines(ctx, r, p.Manifest.Inputs[k].Label(), &item, match, &out)
		if err := errors.Join(err, r.Close()); err != nil || over || from > 0 {
			return out, err
		}
	}
	return out, nil
}

func scanLines(ctx context.Context, r io.Reader, file string, item *uint64, match func(jsonl.Line, dialect.Place) (hit, over bool), out *[]foundLine) (over bool, err error) {
	lines := jsonl.NewScanner(r, jsonl.Options{})
	for n := uint64(0); ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return true, fault.WithKind(fault.Canceled, ctx.Err(), "look for the item in %s, line %d", file, n+1)
		}
		l, err := lines.Next()
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return true, fault.Wrap(err, "read %s", file)
		}
		if l.Blank {
			continue
		}
		at := dialect.Place{Item: *item, File: file, Line: l.Number}
		*item++
		hit, over := match(l, at)
		if hit {
			keep := input.Line{Place: at, Bytes: bytes.Clone(l.Bytes)}
			if l.TooLong {
				keep.TooLong = l.Length
			}
			*out = append(*out, foundLine{at, keep})
		}
		if over {
			return true, nil
		}
	}
}

// openInput opens an input as it was pinned, unpacked.
func (x *Explainer) openInput(ctx context.Context, p status.Progress, k int) (io.ReadCloser, error) {
	if k < len(p.Plan.Ranges) {
		src := p.Plan.Ranges[k]
		return input.OpenPinned(ctx, x.ports.Blobs, src.Key, blob.GetOptions{Version: src.Version})
	}
	in := p.Manifest.Inputs[k]
	r, err := input.OpenPinned(ctx, x.ports.Blobs, in.Key, blob.GetOptions{Version: in.Version})
	if err != nil {
		return nil, err
	}
	u, err := input.Unpack(r, in.Packed)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return unpacking{u, r}, nil
}

// unpacking closes the archive with its reader.
type unpacking struct {
	io.ReadCloser
	archive io.Closer
}

func (u unpacking) Close() error { return errors.Join(u.ReadCloser.Close(), u.archive.Close()) }

// RowPlace is where an item's row is.
type RowPlace struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset"` // of its first byte
	Line   uint64 `json:"line"`   // from 1; 0 if it is not counted there
}

func (r RowPlace) String() string {
	if r.Line == 0 {
		return fmt.Sprintf("%s, at byte %d", r.Key, r.Offset)
	}
	return fmt.Sprintf("%s, line %d (byte %d)", r.Key, r.Line, r.Offset)
}

// findRow reads an object of rows for the first one that matches; nil if there
// is none, or no such object.
func (x *Explainer) findRow(ctx context.Context, key string, match func(row []byte) bool) (*RowPlace, []byte, error) {
	r, _, err := x.ports.Blobs.Get(ctx, key, blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fault.Wrap(err, "read %s", key)
	}
	defer r.Close() // read only: nothing can be lost
	rows := jsonl.NewScanner(r, jsonl.Options{MaxLine: maxRow})
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, nil, fault.WithKind(fault.Canceled, ctx.Err(), "look for the row in %s", key)
		}
		l, err := rows.Next()
		if err == io.EOF {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, fault.Wrap(err, "read %s", key)
		}
		if match(l.Bytes) {
			return &RowPlace{Key: key, Offset: l.Offset, Line: l.Number}, bytes.Clone(l.Bytes), nil
		}
	}
}

// maxRow is the longest row that is looked into: an input's longest line, and
// as much of answers.
const maxRow = 2 * jsonl.MaxLine
