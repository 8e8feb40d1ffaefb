// Package sample asks a part of a prompts file first, and tells from its answers what the whole file takes.
//
//	prompts file ─▶ Draw ─▶ a small file, uploaded as a run of its own ─▶ its rows ─▶ Measure ─▶ Estimate
//	                  └─▶ number and sizes of all items ───────────────────────────────┘
//
// Draw reads the file once and checks every line as a dry run does. In memory it has the places of the sample's lines,
// and of all lines the hashes by which it finds equal ids and requests. The method of the estimate is that of package
// estimate. The package starts no run.
package sample

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"rollout/scripts/rollout/batch"
	"rollout/scripts/rollout/promptsfile"
	"rollout/shared/config"
	"rollout/shared/core/estimate"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
)

// Options say what to draw from which file.
type Options struct {
	File   string // the prompts
	To     string // the path of the file with the sample
	Size   int    // how many lines
	Head   bool   // the first lines instead of random ones
	Seed   uint64 // of random ones
	Config config.Run
	Engine config.Engine
}

// Sample is what Draw wrote, and what it knows of the whole file.
type Sample struct {
	Options
	Report batch.Report        // of all lines
	Whole  estimate.Population // the lines that the run of the whole file asks; sizes are bytes of their requests
	Sizes  []float64           // of the lines in the sample, in their order
	// Repeats are the lines whose request an earlier line has, in a run that asks such requests once.
	Repeats uint64
}

// maxRequests is how many requests are compared in a run that asks equal ones once. Their hashes take 300 MiB.
const maxRequests = 1 << 22

// Draw reads the prompts file and writes the lines of the sample to a new file, in the order of the input. Lines that
// are bad, or that the run does not ask, are not in the sample.
func Draw(ctx context.Context, o Options) (s Sample, err error) {
	spill, err := os.CreateTemp(filepath.Dir(o.To), "lines-*")
	if err != nil {
		return s, unwritable(err)
	}
	defer func() { err = errors.Join(err, spill.Close(), os.Remove(spill.Name())) }()
	d := drawing{options: o, sampler: estimate.NewSampler(o.Size, o.Seed), out: bufio.NewWriter(spill),
		kept: map[uint64]place{}, requests: map[identity.ContentID]struct{}{}}
	report, err := batch.CheckEach(ctx, o.Config, o.Engine, []string{o.File}, d.line)
	if err == nil {
		err = unwritable(d.out.Flush())
	}
	if err != nil {
		return s, err
	}
	s = Sample{Options: o, Report: report, Whole: d.whole, Repeats: d.repeats}
	s.Sizes, err = d.write(spill)
	return s, err
}

// drawing is one Draw. Lines that enter the sample are appended to a temporary file, because they may be large; those
// that leave it again stay there. There are about size × (1 + ln(lines / size)) of them.
type drawing struct {
	options  Options
	sampler  *estimate.Sampler
	whole    estimate.Population
	repeats  uint64
	out      *bufio.Writer
	written  int64
	kept     map[uint64]place // lines of the sample by their ordinal
	requests map[identity.ContentID]struct{}
}

// place is where a line stands in the temporary file.
type place struct {
	offset, length int64
	size           float64 // of the request
}

// line takes one line that the run can ask.
func (d *drawing) line(line []byte, it *dialect.Item) error {
	if d.repeated(it) {
		d.repeats++
		return nil
	}
	ordinal := d.whole.Items
	p := place{offset: d.written, length: int64(len(line)) + 1, size: float64(len(it.Request))}
	d.whole.Add(p.size)
	taken := ordinal < uint64(d.options.Size)
	if !d.options.Head {
		var dropped uint64
		var replaced bool
		if dropped, replaced, taken = d.sampler.Offer(); replaced {
			delete(d.kept, dropped)
		}
	}
	if !taken {
		return nil
	}
	d.kept[ordinal] = p
	d.written += p.length
	if _, err := d.out.Write(line); err != nil {
		return unwritable(err)
	}
	return unwritable(d.out.WriteByte('\n'))
}

// repeated reports whether the run answers the line by a copy of another one's answer.
func (d *drawing) repeated(it *dialect.Item) bool {
	c := d.options.Config
	if !c.Dedupe.Enabled || it.Sampled(c.Sampling) && !c.Dedupe.Sampled {
		return false
	}
	digest := it.RequestDigest()
	_, known := d.requests[digest]
	if !known && len(d.requests) < maxRequests {
		d.requests[digest] = struct{}{}
	}
	return known
}

// write copies the lines of the sample into its file, and returns their sizes.
func (d *drawing) write(spill io.ReaderAt) (sizes []float64, err error) {
	f, err := os.OpenFile(d.options.To, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, unwritable(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	for _, ordinal := range slices.Sorted(maps.Keys(d.kept)) {
		p := d.kept[ordinal]
		if _, err := io.Copy(out, io.NewSectionReader(spill, p.offset, p.length)); err != nil {
			return nil, unwritable(err)
		}
		sizes = append(sizes, p.size)
	}
	return sizes, unwritable(out.Flush())
}

// unwritable is the error of a sample that cannot be written.
func unwritable(err error) error { return promptsfile.Unwritable(err, "the sample") }
