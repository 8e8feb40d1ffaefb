package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/text"
)

// Bounds of the check of a strict batch.
const (
	maxBadLines = 100 // that are named
	maxBadLine  = 300 // bytes that say what is wrong with one
	maxUnpacked = 1 << 40
	strictTime  = 10 * time.Minute
)

// checkStrict reads the whole file of a strict batch, as OpenAI's API does before it begins.
// It notes the first bad lines in the document of the batch, and returns why the batch is
// refused; "" if all lines are good.
func (s *Submitter) checkStrict(ctx context.Context, b record.Batch, c config.Run) (why string, err error) {
	within, cancel := context.WithTimeout(ctx, strictTime)
	defer cancel()
	bad, err := s.badLines(within, b, c)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return fmt.Sprintf("its file could not be checked in %s: create the batch without strict", strictTime), nil
	}
	if err != nil || len(bad) == 0 {
		return "", err
	}
	_, err = host.Update(ctx, s.Docs, record.BatchKey(b.Run),
		func(b record.Batch, found bool) (record.Batch, bool, error) {
			b.BadLines = bad
			return b, found, nil
		})
	more := ""
	switch {
	case len(bad) == maxBadLines:
		more = ", and at least 99 further ones"
	case len(bad) > 1:
		more = fmt.Sprintf(", and %d further ones", len(bad)-1)
	}
	return fmt.Sprintf("line %d is invalid%s: %s (the batch is strict: mend them, or create it without strict)",
		bad[0].Line, more, bad[0].Message), err
}

// badLines returns the first lines of the batch's file that can't be asked at its endpoint.
func (s *Submitter) badLines(ctx context.Context, b record.Batch, c config.Run) (bad []record.BadLine, err error) {
	r, err := input.OpenPinned(ctx, s.Blobs, b.Input.Key, blob.GetOptions{Version: b.Input.Version})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	u, err := input.Unpack(r, b.Input.Packed)
	if err != nil {
		return nil, err
	}
	defer u.Close()
	limited := &limitedReader{u, b.File, cmp.Or(c.Input.MaxUnpacked, maxUnpacked)}
	parser, lines := dialect.NewParser(dialect.OpenAI), jsonl.NewScanner(limited, jsonl.Options{})
	settings := dialect.NewSettings(c.Request, config.Request{})
	for len(bad) < maxBadLines {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return bad, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fault.Wrap(err, "read %s", b.Input.Key)
		}
		if l.Blank {
			continue
		}
		if err := checkLine(parser, settings, l, b.Endpoint); err != nil {
			bad = append(bad, record.BadLine{Line: l.Number, Message: text.Truncate(err.Error(), maxBadLine, "…")})
		}
	}
	return bad, nil
}

// limitedReader refuses a file that unpacks to more than that many bytes.
type limitedReader struct {
	from io.Reader
	file string
	left int64
}

func (r *limitedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if r.left -= int64(n); r.left < 0 {
		return 0, fault.New(fault.Invalid, "%s has too many bytes when it is unpacked (see input.max_unpacked)", r.file)
	}
	return n, err
}

// checkLine returns what is wrong with a line of a strict batch.
func checkLine(parser *dialect.Parser, settings *dialect.Settings, l jsonl.Line, endpoint string) error {
	if l.TooLong {
		return errors.New("it is too long")
	}
	it, err := parser.Parse(l.Bytes)
	if err != nil {
		return err
	}
	if _, err := settings.Target(it); err != nil {
		return err
	}
	if url := dialect.URLOf(it.Endpoint); url != endpoint {
		return fmt.Errorf("its url is for %s, and the batch is for %s", url, endpoint)
	}
	return nil
}
