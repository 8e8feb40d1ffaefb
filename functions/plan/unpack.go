package plan

import (
	"context"
	"fmt"
	"io"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// defaultMaxUnpacked bounds the unpacked size of an archive, in bytes, when the
// config does not.
const defaultMaxUnpacked = 1 << 40

// slowError says that reading an input takes longer than a call may take.
type slowError struct{ why string }

func (e *slowError) Error() string { return e.why }

// slowArchive is the error of an archive that takes too long to unpack. One
// processor unpacks 230 MB of gzip or 515 MB of zstd per second, counted
// unpacked. The network of a function moves about 75 MB per second, so that 15
// minutes suffice for about 50 GB of prompts.
func slowArchive(name string, took time.Duration, read float64) error {
	return &slowError{fmt.Sprintf("%s can't be unpacked within the time that there is: after %s, %.0f %% of it was read "+
		"(stop this run and upload the file unpacked, or as several smaller archives; or resume it to try once more)",
		name, took.Round(time.Second), 100*read)}
}

// slowLine is the error of a line whose end is not reached in time. A line that
// is too long to be asked is still read to its end, to find the next one.
func slowLine(name string, took time.Duration, begins int64) error {
	return &slowError{fmt.Sprintf("%s can't be read within the time that there is: "+
		"after %s, the line that begins at byte %d was not over "+
		"(a request is a line of its own: stop this run and upload a file of such lines; or resume it to try once more)",
		name, took.Round(time.Second), begins)}
}

// unpack writes the unpacked copy of an input to key, unless it exists.
func (p *Planner) unpack(ctx context.Context, run identity.RunID, in record.Input, key string,
	limit int64) (blob.Info, error) {
	if info, err := p.Blobs.Stat(ctx, key, ""); err == nil {
		return info, nil
	}
	if limit <= 0 {
		limit = defaultMaxUnpacked
	}
	began := p.Clock.Now()
	within, cancel := p.within(ctx)
	defer cancel()
	version, err := p.pin(within, run, in.Key, in.Version)
	if err != nil {
		return blob.Info{}, err
	}
	r, err := input.OpenPinned(within, p.Blobs, in.Key, blob.GetOptions{Version: version})
	if err != nil {
		return blob.Info{}, err
	}
	defer r.Close()
	read := &counting{r: r}
	u, err := input.Unpack(read, in.Packed)
	if err != nil {
		return blob.Info{}, err
	}
	defer u.Close()
	info, err := p.Blobs.Put(within, key, &limited{r: u, left: limit, limit: limit}, blob.PutOptions{CreateOnly: true})
	switch {
	case fault.Is(err, fault.Conflict):
		return p.Blobs.Stat(ctx, key, "")
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		share := float64(read.n) / float64(max(1, in.Size))
		return blob.Info{}, slowArchive(in.Label(), p.Clock.Now().Sub(began), share)
	}
	return info, err
}

// within returns a context that ends when an eighth of the call's time is left:
// enough to record that the rest did not suffice.
func (p *Planner) within(ctx context.Context) (context.Context, context.CancelFunc) {
	end, _ := p.timer(ctx, 8)
	if end.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end)
}

// counting counts what is read.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// limited returns an Invalid error once r has more than limit bytes.
type limited struct {
	r           io.Reader
	left, limit int64
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	l.left -= int64(n)
	if l.left < 0 {
		return n, &fault.Error{Kind: fault.Invalid, Remedy: "raise input.max_unpacked, or split it",
			Err: fault.New(fault.Invalid, "the archive unpacks to more than %d bytes", l.limit)}
	}
	return n, err
}
