package trials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// Append writes the lines of all trials of a run, in the order of its schedule, from its pinned
// input. It reads the input once to check every task, and then again for the trials: a task is in
// memory only while its lines are written. Lines that are no tasks are one Invalid error, which
// names the first of them. A missing or changed input is the error of package input.
func Append(ctx context.Context, blobs blob.Store, m record.Manifest, from record.Ranges, w io.Writer) error {
	b := newBook(blobs, m.Config, from)
	if err := b.read(ctx, 0); err != nil {
		return err
	}
	d := DesignOf(m.Config, len(b.places))
	return b.write(ctx, d, d.Schedule(), 0, w)
}

func newBook(blobs blob.Store, c config.Run, files ...record.Ranges) *book {
	return &book{blobs: blobs, files: files, asker: newAsker(c), chain: c.DesignOf().Chain, most: MostTasks(c),
		lines: map[identity.ContentID]taskLine{}, same: map[identity.ContentID]identity.ContentID{},
		chains: map[string]uint32{}}
}

// DesignOf returns the design of a run with that many tasks: its schedule has the trials in the order
// of their items, and its slots those of each task side by side.
func DesignOf(c config.Run, tasks int) design.Design {
	d := c.DesignOf()
	return design.Design{Tasks: tasks, Variants: len(c.Variants), Replications: d.Replications,
		Order: design.Order(d.Order), Seed: uint64(d.Seed)}
}

// MostTasks returns how many tasks a run of the config may have, so that it has at most
// config.MaxTrials.
func MostTasks(c config.Run) int {
	return config.MaxTrials / max(1, len(c.Variants)*c.DesignOf().Replications)
}

// book is what Append and Amend keep of a run's tasks: where they are.
type book struct {
	blobs  blob.Store
	files  []record.Ranges
	asker  *asker
	chain  string // design.chain
	most   int    // tasks
	places []place
	lines  map[identity.ContentID]taskLine           // of each id
	same   map[identity.ContentID]identity.ContentID // the content of each id's line, in a book of several files
	chains map[string]uint32                         // their numbers, from 1 on in the order of their first tasks
	wrong  []string                                  // the first lines that are no tasks, and why
	bad    int                                       // how many they are
}

// place is where the line of a task is.
type place struct {
	offset uint64
	length uint32
	chain  uint32
	file   uint32
}

// taskLine is where the line of a task is, for people.
type taskLine struct{ line, file uint32 }

func (p place) end() uint64 { return p.offset + uint64(p.length) }

// maxWrong is how many lines that are no tasks an error names.
const maxWrong = 5

// checkEvery is how many lines are read between checks of the context.
const checkEvery = 1024

// read checks every line of a file.
func (b *book) read(ctx context.Context, file int) error {
	from := b.files[file]
	r, err := input.OpenPinned(ctx, b.blobs, from.Key, blob.GetOptions{Version: from.Version})
	if err != nil {
		return err
	}
	defer r.Close()
	lines := jsonl.NewScanner(r, jsonl.Options{})
	for n := uint64(1); ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return b.problems()
		}
		if err != nil {
			return err
		}
		if l.Blank {
			continue
		}
		if err := b.line(file, n, l); err != nil {
			if !fault.Is(err, fault.Invalid) {
				return err
			}
			if b.bad++; len(b.wrong) < maxWrong {
				b.wrong = append(b.wrong, fmt.Sprintf("line %d: %s", n, err))
			}
		}
		if len(b.places) > b.most {
			return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "line %d is one of more than %d tasks, and "+
				"the run would have more than %d trials", n, b.most, config.MaxTrials),
				Remedy: "lower design.replications, remove a variant, or split the file"}
		}
	}
}

// problems returns the error of the lines that are no tasks.
func (b *book) problems() error {
	if b.bad == 0 {
		return nil
	}
	more := ""
	if b.bad > len(b.wrong) {
		more = fmt.Sprintf("; and %d more", b.bad-len(b.wrong))
	}
	return &fault.Error{Kind: fault.Invalid,
		Err: fault.New(fault.Invalid, "%s, and no trial was begun: %s%s",
			figures.OfMany(b.bad, "line is not a task", "lines are not tasks"), strings.Join(b.wrong, "; "), more),
		Remedy: "correct them, and submit the file again"}
}

// line takes in a task. A task that an earlier file has is the same one.
func (b *book) line(file int, n uint64, l jsonl.Line) error {
	if l.TooLong {
		return fault.New(fault.Invalid, "it is longer than 16 MiB")
	}
	t, err := ParseTask(l.Bytes, b.chain)
	if err != nil {
		return err
	}
	if err := b.asker.check(t); err != nil {
		return err
	}
	id, content := identity.Content([]byte(t.ID)), identity.ContentID{}
	if len(b.files) > 1 {
		content = identity.Content(jsonl.Compact(nil, l.Bytes))
	}
	if first, dup := b.lines[id]; dup {
		switch {
		case int(first.file) == file:
			return fault.New(fault.Invalid, "line %d has the same id %.64q", first.line, t.ID)
		case b.same[id] != content:
			return fault.New(fault.Invalid, "the run has another task %.64q: give a task that has changed an id of its own",
				t.ID)
		}
		return nil
	}
	b.lines[id] = taskLine{uint32(n), uint32(file)}
	if len(b.files) > 1 {
		b.same[id] = content
	}
	p := place{offset: uint64(l.Offset), length: uint32(l.Length), file: uint32(file)}
	if t.Chain != "" {
		if b.chains[t.Chain] == 0 {
			b.chains[t.Chain] = uint32(len(b.chains)) + 1
		}
		p.chain = b.chains[t.Chain]
	}
	b.places = append(b.places, p)
	return nil
}

// Bounds of what is read of the input at once.
const (
	trialsAtOnce = 4096
	bytesAtOnce  = 4 << 20   // of tasks, but for a longer one
	gapAtOnce    = 256 << 10 // of other tasks between two that are wanted
	spanAtOnce   = 4 << 20   // of one read, but for a longer task
	readsAtOnce  = 16
)

// write writes the lines of trials of a design, the first of which has that schedule index.
func (b *book) write(ctx context.Context, d design.Design, trials iter.Seq[design.Place], first int,
	w io.Writer) error {
	var next []design.Place // trials whose lines are due
	wanted, size, index := map[int]bool{}, 0, first
	flush := func() error {
		tasks, err := b.tasks(ctx, wanted)
		if err != nil {
			return err
		}
		if err := b.writeLines(d, index, next, tasks, w); err != nil {
			return err
		}
		index += len(next)
		next, size = next[:0], 0
		clear(wanted)
		return nil
	}
	for p := range trials {
		if length := int(b.places[p.Task].length); !wanted[p.Task] {
			if len(next) > 0 && size+length > bytesAtOnce {
				if err := flush(); err != nil {
					return err
				}
			}
			wanted[p.Task] = true
			size += length
		}
		if next = append(next, p); len(next) == trialsAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// writeLines writes the lines of trials, the first of which has that schedule index.
func (b *book) writeLines(d design.Design, index int, trials []design.Place, tasks map[int]Task, w io.Writer) error {
	var line []byte
	for n, p := range trials {
		t := tasks[p.Task]
		messages, err := b.asker.variants[p.Variant].messages(t)
		if err != nil {
			return err
		}
		of := b.asker.trial(d, index+n, p, t, b.places[p.Task].chain)
		line = b.asker.appendLine(line[:0], t, messages, of, p.Variant)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// tasks reads the tasks of these numbers. Those that stand close together are one read, and some
// reads go at once: a remote store answers concurrent requests faster than one after another.
func (b *book) tasks(ctx context.Context, numbers map[int]bool) (map[int]Task, error) {
	sorted := slices.Sorted(maps.Keys(numbers))
	read := make([]Task, len(sorted))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for lo := 0; lo < len(sorted); {
		hi := lo + 1
		for hi < len(sorted) && b.places[sorted[hi]].file == b.places[sorted[lo]].file &&
			b.places[sorted[hi]].offset-b.places[sorted[hi-1]].end() <= gapAtOnce &&
			b.places[sorted[hi]].end()-b.places[sorted[lo]].offset <= spanAtOnce {
			hi++
		}
		some, into := sorted[lo:hi], read[lo:hi]
		group.Go(func() error { return b.readTasks(ctx, some, into) })
		lo = hi
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := make(map[int]Task, len(sorted))
	for i, n := range sorted {
		out[n] = read[i]
	}
	return out, nil
}

// readTasks reads tasks with one request.
func (b *book) readTasks(ctx context.Context, numbers []int, out []Task) error {
	first, last := b.places[numbers[0]], b.places[numbers[len(numbers)-1]]
	raw := make([]byte, last.end()-first.offset)
	from := b.files[first.file]
	r, err := input.OpenPinned(ctx, b.blobs, from.Key, blob.GetOptions{Version: from.Version,
		Offset: int64(first.offset), Length: int64(len(raw))})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.ReadFull(r, raw); err != nil {
		return fault.Wrap(err, "read %s", from.Key)
	}
	for i, n := range numbers {
		p := b.places[n]
		line := bytes.TrimRight(raw[p.offset-first.offset:p.end()-first.offset], "\r\n")
		if p.offset == 0 {
			line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
		}
		if out[i], err = ParseTask(line, b.chain); err != nil { // it was read before
			return fault.WithKind(fault.Corrupt, err, "task %d of %s", n, from.Key)
		}
	}
	return nil
}

// ShardOf returns the variant and the chain of the shard that a trial's line is.
func ShardOf(m record.Manifest, line []byte) (variant, chain uint32, err error) {
	t, err := readTrial(line)
	if err != nil {
		return 0, 0, err
	}
	n := slices.IndexFunc(m.Config.Variants, func(v config.Variant) bool { return v.Name == t.Variant })
	if n < 0 {
		return 0, 0, fault.New(fault.Corrupt, "run %s has no variant %.64q", m.Run, t.Variant)
	}
	return uint32(n), t.Chain, nil
}
