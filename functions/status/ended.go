package status

import (
	"context"
	"slices"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// EndedRun is the document of an ended run at its record.EndedKey: what it came to. It
// never changes, so that a page of them is one request, however many runs there were.
// Only reclaim writes it.
type EndedRun struct {
	Schema int    `json:"schema"`
	Status Status `json:"status"`
}

// maxEndedInputs bounds the inputs that the entry of an ended run names.
const maxEndedInputs = 100

// NewEnded returns the entry of an ended run, and its key.
func NewEnded(p Progress) (key string, e EndedRun) {
	p.Notifications = record.Notifications{} // what is not delivered yet may be later
	s := Of(p, p.Manifest.CreatedAt)
	named := min(len(s.Inputs), maxEndedInputs)
	s.Inputs, s.MoreInputs = s.Inputs[:named], s.MoreInputs+len(s.Inputs)-named
	return record.EndedKey(s.Ended(), s.Run), EndedRun{Schema: record.Schema, Status: s}
}

// Ended is when the run ended; when it was created, if that is not known.
func (s Status) Ended() time.Time {
	if s.EndedAt != nil {
		return *s.EndedAt
	}
	return s.CreatedAt
}

// Page says which ended runs to read.
type Page struct {
	Limit int       // at most so many, those that ended last; 0 reads all
	Since time.Time // only runs that ended since; zero for any
	After string    // only the entries behind that key; "" for all
}

// Ended are ended runs.
type Ended struct {
	Runs []Status // the last to end first
	More int      // how many more there are; of all, also if the page is after an entry
	All  int      // how many there are
	// Expired is how many runs had ended and have no documents any more.
	Expired int
	// Indexed is false if the index of runs is not complete yet: then it has no runs, and
	// Manifests has all.
	Indexed bool
}

// Ended returns a page of the ended runs: usually with one request.
func (r *Reader) Ended(ctx context.Context, page Page) (out Ended, err error) {
	limit := document.MaxPage
	if page.Limit > 0 {
		limit = min(limit, page.Limit+1) // with the index before them
	}
	docs, err := r.ports.Docs.List(ctx, record.EndedPrefix, "", limit)
	if err != nil {
		return out, fault.Wrap(err, "list the ended runs")
	}
	var index record.RunIndex
	if len(docs) == 0 || docs[0].Key != record.RunIndexKey {
		return out, nil
	}
	if err := decodeDoc(docs[0], &index); err != nil || !index.Built {
		return out, err
	}
	out.Indexed, out.Expired, out.All = true, index.Expired, index.Ended
	defer func() { out.More = max(0, index.Ended-len(out.Runs)) }()
	after, entries := docs[0].Key, docs[1:]
	if page.After != "" {
		after = page.After
		if entries, err = r.ports.Docs.List(ctx, record.EndedPrefix, after, limit); err != nil {
			return out, fault.Wrap(err, "list the ended runs")
		}
	}
	for {
		for _, d := range entries {
			if page.over(d.Key, len(out.Runs)) {
				return out, nil
			}
			var e EndedRun
			if err := decodeDoc(d, &e); err != nil {
				return out, err
			}
			out.Runs, after = append(out.Runs, e.Status), d.Key
		}
		if page.over(after, len(out.Runs)) {
			return out, nil
		}
		entries, err = r.ports.Docs.List(ctx, record.EndedPrefix, after, limit)
		if err != nil || len(entries) == 0 {
			return out, fault.Wrap(err, "list the ended runs")
		}
	}
}

// over reports whether the page ends before the entry with that key, having read so many.
func (p Page) over(key string, read int) bool {
	return p.Limit > 0 && read >= p.Limit || !p.Since.IsZero() && key >= record.EndedAfter(p.Since.Add(-time.Millisecond))
}

// Open returns the manifests of the runs that have not ended, and of those that ended
// just now.
func (r *Reader) Open(ctx context.Context) (out []record.Manifest, err error) {
	var ids []identity.RunID
	for d, err := range document.All(ctx, r.ports.Docs, record.OpenRunPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the open runs")
		}
		if id, ok := record.RunFromKey(d.Key); ok {
			ids = append(ids, id)
		}
	}
	return r.manifests(ctx, ids)
}

// namedPage is how many entries by name Named reads first. Almost always one of them is of a
// run.
const namedPage = 8

// Named returns the newest run with a name; found is false if no run has it. It passes over
// entries of submissions that failed, however many.
func (r *Reader) Named(ctx context.Context, name string) (m record.Manifest, found bool, err error) {
	for after, limit := "", namedPage; ; limit = document.MaxKeys {
		docs, err := r.ports.Docs.List(ctx, record.NamePrefix(name), after, limit)
		if err != nil || len(docs) == 0 {
			return m, false, fault.Wrap(err, "look for runs by name")
		}
		var ids []identity.RunID
		for _, d := range docs {
			// Each try of a submission leaves an entry.
			if id, ok := record.RunOfEntry(d.Key); ok && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
			after = d.Key
		}
		ms, err := r.manifests(ctx, ids)
		if err != nil {
			return m, false, err
		}
		if i := slices.IndexFunc(ms, func(m record.Manifest) bool { return m.Name == name }); i >= 0 {
			return ms[i], true, nil
		}
	}
}

// WithPrefix returns the manifests of the runs whose ids begin so, in the order of their
// ids, at most limit.
func (r *Reader) WithPrefix(ctx context.Context, prefix string, limit int) (out []record.Manifest, err error) {
	docs, err := r.ports.Docs.List(ctx, record.ManifestPrefix+prefix, "", limit)
	if err != nil {
		return nil, fault.Wrap(err, "look for runs by their ids")
	}
	for _, d := range docs {
		m, err := host.DecodeManifest(d)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// ExpiredWithPrefix returns host.ExpiredError if exactly one run whose id begins so has expired,
// and nil otherwise.
func (r *Reader) ExpiredWithPrefix(ctx context.Context, prefix string) error {
	docs, err := r.ports.Docs.List(ctx, record.FoundPrefix+prefix, "", document.MaxPage)
	if err != nil {
		return fault.Wrap(err, "look for runs that have expired by their ids")
	}
	var only identity.RunID
	for _, d := range docs {
		var f record.FoundInput
		id, ok := record.RunFromKey(d.Key)
		if err := decodeDoc(d, &f); err != nil {
			return err
		}
		switch {
		case !ok || f.Expired == nil:
		case only != "":
			return nil
		default:
			only = id
		}
	}
	if only == "" {
		return nil
	}
	_, err = host.LoadManifest(ctx, r.ports.Docs, only)
	return err
}

// Expired returns how many runs had ended and have no documents any more.
func (r *Reader) Expired(ctx context.Context) (int, error) {
	var index record.RunIndex
	_, _, err := host.Load(ctx, r.ports.Docs, record.RunIndexKey, &index)
	return index.Expired, err
}

// Indexed reports whether the index of runs has every run.
func (r *Reader) Indexed(ctx context.Context) (bool, error) {
	var index record.RunIndex
	_, _, err := host.Load(ctx, r.ports.Docs, record.RunIndexKey, &index)
	return index.Built, err
}

// manifests reads the manifests of runs, in their order. It leaves out runs without one: a
// submission that failed left an entry of an index.
func (r *Reader) manifests(ctx context.Context, ids []identity.RunID) ([]record.Manifest, error) {
	all, err := host.LoadManifests(ctx, r.ports.Docs, ids)
	return slices.DeleteFunc(all, func(m record.Manifest) bool { return m.Run == "" }), err
}

// KnownUploads returns which of the uploads are runs, or the inputs of earlier runs. See
// host.LoadUpload, which reads one.
func (r *Reader) KnownUploads(ctx context.Context, uploads []identity.RunID) (map[identity.RunID]bool, error) {
	known := map[identity.RunID]bool{}
	for _, key := range []func(identity.RunID) string{record.ManifestKey, record.FoundKey} {
		for part := range slices.Chunk(uploads, document.MaxKeys) {
			keys := make([]string, len(part))
			for i, id := range part {
				keys[i] = key(id)
			}
			docs, err := r.ports.Docs.GetMany(ctx, keys)
			if err != nil {
				return nil, fault.Wrap(err, "look for the runs of uploads")
			}
			for i, d := range docs {
				if d.Revision != "" {
					known[part[i]] = true
				}
			}
		}
		uploads = slices.DeleteFunc(slices.Clone(uploads), func(id identity.RunID) bool { return known[id] })
	}
	return known, nil
}
