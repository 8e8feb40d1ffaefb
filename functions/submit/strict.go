package submit

import (
	"context"
	"errors"
	"fmt"
	"io"

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

// maxBadLines is how many lines of a strict batch are named, and maxBadLine how many bytes
// say what is wrong with one.
const (
	maxBadLines = 100
	maxBadLine  = 300
)

// checkStrict reads the whole file of a strict batch, as OpenAI's API does before it begins.
// It notes the first bad lines in the document of the batch, and returns why the batch is
// refused; "" if all lines are good.
func (s *Submitter) checkStrict(ctx context.Context, b record.Batch, r *config.Request) (why string, err error) {
	bad, err := s.badLines(ctx, b, dialect.NewSettings(r, config.Request{}))
	if err != nil || len(bad) == 0 {
		return "", err
	}
	_, err = host.Update(ctx, s.Docs, record.BatchKey(b.Run),
		func(b record.Batch, found bool) (record.Batch, bool, error) {
			b.BadLines = bad
			return b, found, nil
		})
	more := ""
	if len(bad) > 1 {
		more = fmt.Sprintf(", and %d further ones", len(bad)-1)
	}
	return fmt.Sprintf("line %d is invalid%s: %s (the batch is strict: mend them, or create it without strict)",
		bad[0].Line, more, bad[0].Message), err
}

// badLines returns the first lines of the batch's file that can't be asked at its endpoint.
func (s *Submitter) badLines(ctx context.Context, b record.Batch,
	settings *dialect.Settings) (bad []record.BadLine, err error) {
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
	parser, lines := dialect.NewParser(dialect.OpenAI), jsonl.NewScanner(u, jsonl.Options{})
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
