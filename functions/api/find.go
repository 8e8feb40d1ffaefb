package api

import (
	"context"
	"slices"
	"strings"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// MaxMatches is the most runs that Find returns.
const MaxMatches = 5

// Find returns the run that text names: the run with that id, else the newest run with
// that name, else the runs whose ids begin so, the newest first, at most MaxMatches. Ids
// match in upper and lower case. It returns nothing if no run matches, and host.ExpiredError if
// that is a run that has expired, which is found by its id or the beginning of it. It reads an
// index, so that it takes no longer for many runs.
func (s *Service) Find(ctx context.Context, text string) ([]status.Status, error) {
	id := strings.ToUpper(text)
	if identity.RunID(id).Valid() {
		r, err := s.Show(ctx, identity.RunID(id))
		if err == nil || !fault.Is(err, fault.NotFound) || host.IsExpired(err) {
			return []status.Status{r}, err
		}
	}
	switch indexed, err := s.reader.Indexed(ctx); {
	case err != nil:
		return nil, err
	case !indexed: // a newer run of that name may not be entered yet
		return s.findInAll(ctx, text)
	}
	switch m, found, err := s.reader.Named(ctx, text); {
	case err != nil:
		return nil, err
	case found:
		r, err := s.Show(ctx, m.Run)
		return []status.Status{r}, err
	}
	if text == "" || !isIDPrefix(id) {
		return nil, nil
	}
	found, err := s.reader.WithPrefix(ctx, id, MaxMatches)
	if err == nil && len(found) == 0 {
		err = s.reader.ExpiredWithPrefix(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return s.newest(ctx, found)
}

// findInAll is Find without an index by name.
func (s *Service) findInAll(ctx context.Context, text string) ([]status.Status, error) {
	all, err := s.reader.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b record.Manifest) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if i := slices.IndexFunc(all, func(m record.Manifest) bool { return m.Name == text }); i >= 0 {
		return s.newest(ctx, all[i:i+1])
	}
	id := strings.ToUpper(text)
	all = slices.DeleteFunc(all, func(m record.Manifest) bool {
		return text == "" || !strings.HasPrefix(string(m.Run), id)
	})
	slices.SortFunc(all, func(a, b record.Manifest) int { return strings.Compare(string(a.Run), string(b.Run)) })
	return s.newest(ctx, all[:min(len(all), MaxMatches)])
}

// newest returns the runs with these manifests, the newest first.
func (s *Service) newest(ctx context.Context, ms []record.Manifest) ([]status.Status, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	workers, err := s.reader.Workers(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.statusOf(ctx, ms, workers)
	slices.SortFunc(out, newestFirst)
	return out, err
}

// isIDPrefix reports whether an id of a run can begin so.
func isIDPrefix(text string) bool {
	const example = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	return len(text) <= len(example) && identity.RunID(text+example[len(text):]).Valid()
}
