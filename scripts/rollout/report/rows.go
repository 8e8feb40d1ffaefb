package report

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// lines calls each for every line of a file of the run, until it returns false. The line is valid during the call.
// Lines over 16 MiB are counted in r.long and left out.
func (r *reader) lines(ctx context.Context, name string, each func(line []byte) (more bool, err error)) error {
	key := record.OutputKey(r.Manifest.Run, name)
	object, _, err := r.Blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return fault.Wrap(err, "read %s", key)
	}
	defer object.Close()
	lines := jsonl.NewScanner(object, jsonl.Options{})
	for n := 1; ; n++ {
		l, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fault.Wrap(err, "read %s", key)
		case l.TooLong:
			r.long++
			continue
		case l.Blank:
			continue
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if more, err := each(l.Bytes); err != nil || !more {
			return fault.Wrap(err, "%s, line %d", key, n)
		}
	}
}

// rows calls each for every row of a file of the run. A row that is not of type T is Corrupt.
func rows[T any](ctx context.Context, r *reader, name string, each func(row T)) error {
	return r.lines(ctx, name, func(line []byte) (bool, error) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			return false, &fault.Error{Kind: fault.Corrupt, Op: "decode the row", Err: err,
				Remedy: "the file was changed after the run: restore its older version from the bucket"}
		}
		each(row)
		return true, nil
	})
}

// ticketOf returns the name of a ticket in the id of one of its answers. Example: "t17" of "t17.e0.d0.s1".
func ticketOf(id string) string {
	name, _, _ := strings.Cut(id, ".")
	return name
}
