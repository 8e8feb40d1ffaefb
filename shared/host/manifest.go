package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// ErrNoRun is the cause of LoadManifest's NotFound error. It tells an unknown
// run from anything else of a run that is not found.
var ErrNoRun = errors.New("there is no run")

// ExpiredError is the cause of LoadManifest's NotFound error of a run that has expired. It is
// ErrNoRun, too.
type ExpiredError struct {
	Run identity.RunID
	record.Expired
}

// Error says which run has expired, and when it ended.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("run %s (%.64q) ended on %s as %s, and its documents have expired", e.Run, e.Name,
		e.EndedAt.UTC().Format(time.DateOnly), strings.ReplaceAll(e.Phase, "_", " "))
}

// Is reports whether target is ErrNoRun.
func (e *ExpiredError) Is(target error) bool { return target == ErrNoRun }

// IsExpired reports whether an error is about a run that has expired.
func IsExpired(err error) bool {
	var expired *ExpiredError
	return errors.As(err, &expired)
}

// LoadManifest reads and decodes a run's manifest. An id without one, or that
// cannot be a run's, is NotFound with the cause ErrNoRun or, of a run that has expired, with an
// ExpiredError. A damaged document, or the manifest of another run, is Corrupt; one of a newer
// schema is Invalid.
func LoadManifest(ctx context.Context, docs document.Store, id identity.RunID) (record.Manifest, error) {
	if !id.Valid() {
		return record.Manifest{}, noRun(id)
	}
	d, err := docs.Get(ctx, record.ManifestKey(id))
	if fault.Is(err, fault.NotFound) {
		return record.Manifest{}, noManifest(ctx, docs, id)
	}
	if err != nil {
		return record.Manifest{}, fault.Wrap(err, "load %s", record.ManifestKey(id))
	}
	return DecodeManifest(d)
}

// LoadUpload returns the manifest of the run that an upload is: the one with its id, or the
// earlier one whose input it was found to be (see record.FoundInput). It has the errors of
// LoadManifest.
func LoadUpload(ctx context.Context, docs document.Store, upload identity.RunID) (record.Manifest, error) {
	m, err := LoadManifest(ctx, docs, upload)
	if !errors.Is(err, ErrNoRun) {
		return m, err
	}
	var found record.FoundInput
	if _, ok, loadErr := Load(ctx, docs, record.FoundKey(upload), &found); loadErr != nil || !ok {
		return m, cmp.Or(loadErr, err)
	}
	return LoadManifest(ctx, docs, found.Run)
}

// LoadManifests returns the manifests of runs, in their order; a run without one has the zero
// Manifest. One that can't be decoded is an error.
func LoadManifests(ctx context.Context, docs document.Store, ids []identity.RunID) ([]record.Manifest, error) {
	out := make([]record.Manifest, 0, len(ids))
	for part := range slices.Chunk(ids, document.MaxKeys) {
		keys := make([]string, len(part))
		for i, id := range part {
			keys[i] = record.ManifestKey(id)
		}
		found, err := docs.GetMany(ctx, keys)
		if err != nil {
			return nil, fault.Wrap(err, "read the manifests of %d runs", len(ids))
		}
		for _, d := range found {
			m, err := DecodeManifest(d)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return out, nil
}

// noManifest returns why a run has no manifest: it has expired, or never was.
func noManifest(ctx context.Context, docs document.Store, id identity.RunID) error {
	var found record.FoundInput
	switch _, _, err := Load(ctx, docs, record.FoundKey(id), &found); {
	case err != nil:
		return err
	case found.Expired == nil:
		return noRun(id)
	}
	return &fault.Error{Kind: fault.NotFound, Err: &ExpiredError{id, *found.Expired},
		Remedy: "its files are in " + record.OutputKey(id, "") + ": `rollout results " + string(id) + "` reads them"}
}

func noRun(id identity.RunID) error {
	return &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("%w %.64q", ErrNoRun, string(id)),
		Remedy: "`rollout status` lists the runs"}
}

// DecodeManifest decodes a document that was listed or read with others, with
// the errors of LoadManifest. An absent document, as GetMany returns it, is the
// zero Manifest.
func DecodeManifest(d document.Doc) (m record.Manifest, err error) {
	if d.Revision == "" {
		return m, nil
	}
	if err := record.Decode(d.Value, &m, "document "+d.Key); err != nil {
		return m, err
	}
	if id, ok := record.RunFromKey(d.Key); !ok || m.Run != id {
		return m, fault.New(fault.Corrupt, "document %s is the manifest of run %q", d.Key, m.Run)
	}
	return m, nil
}
