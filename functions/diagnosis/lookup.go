package diagnosis

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
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

// foundLine is a line of a run's input that an itemRef matches.
type foundLine struct {
	place dialect.Place
	line  input.Line
}

// maxFound bounds the lines with the same id that are reported.
const maxFound = 20

// itemRef is how a user refers to an item: by #INDEX, FILE:LINE or an id.
type itemRef struct {
	text  string
	item  *uint64 // of #INDEX; nil for the others
	input int     // of FILE:LINE
	file  string  // the input's name for users
	line  uint64  // of FILE:LINE; 0 for an id
}

// itemIndex returns the index of a reference of the form #INDEX.
func itemIndex(text string) (uint64, bool) {
	number, ok := strings.CutPrefix(text, "#")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return n, err == nil
}

// parseItemRef parses a reference. A text of neither form, or with a FILE that
// is not an input of the run, is an id.
func (x *Explainer) parseItemRef(ctx context.Context, p status.Progress, text string) (itemRef, error) {
	w := itemRef{text: text}
	if n, ok := itemIndex(text); ok {
		w.item = &n
		return w, nil
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return w, nil
	}
	line, err := strconv.ParseUint(text[i+1:], 10, 64)
	if err != nil || line == 0 {
		return w, nil
	}
	k := 0
	for in, err := range x.index.All(ctx, p.Manifest) {
		if err != nil {
			return w, err
		}
		name := in.Label()
		if slices.Contains([]string{name, in.Key, path.Base(name), path.Base(in.Key)}, text[:i]) {
			w.input, w.file, w.line = k, name, line
			return w, nil
		}
		k++
	}
	for ; k < inputs(p); k++ {
		if name := p.Manifest.InputName(k); name == text[:i] {
			w.input, w.file, w.line = k, name, line
			return w, nil
		}
	}
	return w, nil
}

// inputs returns the number of the run's inputs and of what its kind appended.
func inputs(p status.Progress) int { return max(p.Manifest.InputCount(), p.Plan.Sources()) }

// find returns the lines that the reference matches, in the order of the input.
// It finds planned items through the plan. It finds others, and item ids, by
// reading the whole input, with bounded memory and unbounded time.
func (x *Explainer) find(ctx context.Context, p status.Progress, w itemRef) ([]foundLine, error) {
	switch {
	case w.item != nil:
		loc, err := x.index.LocateItem(ctx, p.Manifest.Run, *w.item)
		if fault.Is(err, fault.NotFound) {
			return x.scan(ctx, p, 0, func(_ jsonl.Line, at dialect.Place) (hit, over bool) {
				return at.Item == *w.item, at.Item >= *w.item
			})
		}
		if err != nil {
			return nil, err
		}
		return x.lineOf(ctx, p, loc, func(l input.Line) bool { return l.Place.Item == *w.item })
	case w.line > 0:
		loc, err := x.index.LocateLine(ctx, p.Manifest.Run, w.input, w.line)
		if fault.Is(err, fault.NotFound) {
			return x.scan(ctx, p, w.input, func(_ jsonl.Line, at dialect.Place) (hit, over bool) {
				return at.Line == w.line, at.Line >= w.line
			})
		}
		if err != nil {
			return nil, err
		}
		return x.lineOf(ctx, p, loc, func(l input.Line) bool { return l.Place.Line == w.line })
	}
	out, complete, err := x.findPlanned(ctx, p, w.text)
	if err != nil || complete {
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

// ItemOf returns the index of the only item of the run whose line has the id. Without such an item
// it returns NotFound, and Conflict if several have it.
func (x *Explainer) ItemOf(ctx context.Context, id identity.RunID, lineID string) (uint64, error) {
	p, err := x.progress(ctx, id)
	if err != nil {
		return 0, err
	}
	lines, err := x.find(ctx, p, itemRef{text: lineID})
	switch {
	case err != nil:
		return 0, err
	case len(lines) == 0:
		return 0, fault.New(fault.NotFound, "run %s has no item %.64q", id, lineID)
	case len(lines) > 1:
		return 0, fault.New(fault.Conflict, "run %s has several items %.64q", id, lineID)
	}
	return lines[0].place.Item, nil
}

// findPlanned looks an id up in the plan's lists. complete reports that no other
// line has the id: the plan is complete, and either a line was found or the id
// cannot be an item id. It is false if the plan's objects are gone.
func (x *Explainer) findPlanned(ctx context.Context, p status.Progress,
	id string) (out []foundLine, complete bool, err error) {
	if p.Plan.Total == 0 {
		return nil, false, nil
	}
	items, err := x.index.FindID(ctx, p.Manifest.Run, p.Plan, id, maxFound)
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

// isItemID reports whether the text has the form of an item id in hex.
func isItemID(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == hex.EncodedLen(len(identity.ContentID{}))
}

// lineOf returns the first line of a planned shard that matches.
func (x *Explainer) lineOf(ctx context.Context, p status.Progress, loc input.Location,
	match func(input.Line) bool) ([]foundLine, error) {
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

// idMatcher matches lines by their own id or, if the text has the form of an item
// id, by their item id.
func idMatcher(m record.Manifest, text string) func(jsonl.Line, dialect.Place) bool {
	name, id := dialect.Name(m.Dialect), []byte(text)
	models, wantHex := modelsOf(m), isItemID(text)
	return func(l jsonl.Line, at dialect.Place) bool {
		if bytes.Contains(l.Bytes, id) || bytes.IndexByte(l.Bytes, '\\') >= 0 { // the id may be escaped
			if got, ok := dialect.ScanID(name, l.Bytes); ok && bytes.Equal(got, id) {
				return true
			}
		}
		if !wantHex || l.Bytes == nil {
			return false
		}
		it, err := dialect.Parse(name, l.Bytes)
		return err == nil && slices.ContainsFunc(models, func(model dialect.Model) bool {
			return it.ItemID(model, at.Item).String() == strings.ToLower(text)
		})
	}
}

// modelsOf returns the models that answer the users' items.
func modelsOf(m record.Manifest) []dialect.Model {
	models := []dialect.Model{m.DialectModel()}
	for _, role := range m.OutputRoles() {
		if of, err := m.InRole(uint32(role)); err == nil {
			models = append(models, of.DialectModel())
		}
	}
	return models
}

// checkEvery is how many lines are read between checks of the context.
const checkEvery = 4096

// matcher decides on a line: hit adds it to the result, over ends the scan.
type matcher func(jsonl.Line, dialect.Place) (hit, over bool)

// scan reads the run's inputs and returns the lines that match. It reads all
// inputs if from is 0, and otherwise only input from, without item indexes.
func (x *Explainer) scan(ctx context.Context, p status.Progress, from int, match matcher) (out []foundLine, err error) {
	var item uint64
	for k := from; k < inputs(p); k++ {
		r, err := x.openInput(ctx, p, k)
		if err != nil {
			return out, err
		}
		name, err := x.index.InputName(ctx, p.Manifest, k)
		if err != nil {
			return out, errors.Join(err, r.Close())
		}
		found, over, err := scanLines(ctx, r, name, &item, match)
		out = append(out, found...)
		if err := errors.Join(err, r.Close()); err != nil || over || from > 0 {
			return out, err
		}
	}
	return out, nil
}

// scanLines reads one input. item is the index of its first item, and is
// advanced.
func scanLines(ctx context.Context, r io.Reader, file string, item *uint64,
	match matcher) (out []foundLine, over bool, err error) {
	lines := jsonl.NewScanner(r, jsonl.Options{})
	for n := uint64(0); ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return out, true, fault.WithKind(fault.Canceled, ctx.Err(), "look for the item in %s, line %d", file, n+1)
		}
		l, err := lines.Next()
		if err == io.EOF {
			return out, false, nil
		}
		if err != nil {
			return out, true, fault.Wrap(err, "read %s", file)
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
				keep.TooLong, keep.Head = l.Length, l.Head
			}
			out = append(out, foundLine{at, keep})
		}
		if over {
			return out, true, nil
		}
	}
}

// openInput opens an input as it was planned, unpacked.
func (x *Explainer) openInput(ctx context.Context, p status.Progress, k int) (io.ReadCloser, error) {
	if k < p.Plan.Sources() {
		src, err := x.index.Source(ctx, p.Manifest.Run, p.Plan, k)
		if err != nil {
			return nil, err
		}
		version, _, err := x.index.PlannedVersion(ctx, p.Manifest, p.Plan, k)
		if err != nil {
			return nil, err
		}
		return input.OpenPinned(ctx, x.ports.Blobs, src.Key, blob.GetOptions{Version: version})
	}
	in, err := x.index.Input(ctx, p.Manifest, k)
	if err != nil {
		return nil, err
	}
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

// unpacking closes the archive together with its reader.
type unpacking struct {
	io.ReadCloser
	archive io.Closer
}

func (u unpacking) Close() error { return errors.Join(u.ReadCloser.Close(), u.archive.Close()) }

// RowPlace is where an item's row is.
type RowPlace struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset"` // of its first byte
	Line   uint64 `json:"line"`   // from 1; 0 where lines are not counted
}

func (r RowPlace) String() string {
	if r.Line == 0 {
		return fmt.Sprintf("%s, at byte %d", r.Key, r.Offset)
	}
	return fmt.Sprintf("%s, line %d (byte %d)", r.Key, r.Line, r.Offset)
}

// findRow returns the first row of an object that matches; nil if no row matches
// or the object does not exist.
func (x *Explainer) findRow(ctx context.Context, key string,
	match func(row []byte) bool) (*RowPlace, []byte, error) {
	r, _, err := x.ports.Blobs.Get(ctx, key, blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fault.Wrap(err, "read %s", key)
	}
	defer r.Close() // a read loses nothing
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

// maxRow bounds the rows that are read: the longest input line, and an answer of
// the same length.
const maxRow = 2 * jsonl.MaxLine

// firstLost says of an ended run with damaged or lost results which object the first is;
// "" for any other run.
func (x *Explainer) firstLost(ctx context.Context, p status.Progress, s status.Status) (string, error) {
	if !s.Phase.Ended() || s.FailedByClass[string(fault.Storage)] == 0 {
		return "", nil
	}
	said := ""
	_, _, err := x.findRow(ctx, record.OutputKey(p.Manifest.Run, record.ErrorsFile), func(row []byte) bool {
		f, ok := dialect.ReadFailure(dialect.Name(p.Manifest.Dialect), row)
		said = f.Message
		return ok && f.Class == fault.Storage
	})
	return said, err
}
