package diagnosis

import (
	"context"
	"slices"
	"strings"
	"sync"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// FailedClass is what failed for one reason.
type FailedClass struct {
	Class   fault.Class    `json:"class"`
	Count   int            `json:"count"`
	Samples []FailedSample `json:"samples"`
}

// FailedSample is a failed item.
type FailedSample struct {
	Item    uint64 `json:"index"`
	ID      string `json:"id"`
	Message string `json:"message"`
}

// Bounds of the samples of a class.
const (
	maxSamples = 3
	maxMessage = 1 << 10
)

// Failures returns the classes of a run's failed items, the largest first, with the first items of
// each. It looks for them as Items does, and may find fewer in a run with very many items. What it
// has found it keeps, and does not look again before something else has failed.
func (x *Explainer) Failures(ctx context.Context, id identity.RunID) (status.Status, []FailedClass, error) {
	p, err := x.progress(ctx, id)
	if err != nil {
		return status.Status{}, nil, err
	}
	s := StatusOf(p, x.ports.Clock.Now())
	out := []FailedClass{}
	for class, n := range s.FailedByClass {
		if n > 0 {
			out = append(out, FailedClass{fault.Class(class), n, []FailedSample{}})
		}
	}
	slices.SortFunc(out, func(a, b FailedClass) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(string(a.Class), string(b.Class))
	})
	wanted := missing(out)
	if wanted == 0 || p.Kind.Trains || p.Manifest.Refused != "" {
		return s, out, nil
	}
	if x.samples.take(p, out) {
		return s, out, nil
	}
	wanted = missing(out)
	l := x.list(p)
	defer l.close()
	l.errorsOnly = true
	l.skips = func(d shard.Doc) bool { return d.Counts.Failed == 0 }
	_, err = l.each(ctx, 0, func(it listed) (bool, error) {
		i := slices.IndexFunc(out, func(c FailedClass) bool { return c.Class == it.class })
		if i < 0 || len(out[i].Samples) == maxSamples || out[i].has(it.item) {
			return true, nil
		}
		message := ""
		if failure, ok := dialect.ReadFailure(it.dialect, it.row); ok {
			message = text.Truncate(failure.Message, maxMessage, "…")
		}
		out[i].Samples = append(out[i].Samples,
			FailedSample{it.item, text.Truncate(it.id(), maxListedID, "…"), message})
		wanted--
		return wanted > 0, nil
	})
	if fault.Is(err, fault.NotFound) { // cleaned up: the counts stay
		err = nil
	}
	if err == nil {
		x.samples.keep(p, out)
	}
	return s, out, err
}

// missing returns how many samples the classes lack.
func missing(classes []FailedClass) (n int) {
	for _, c := range classes {
		n += max(0, min(c.Count, maxSamples)-len(c.Samples))
	}
	return n
}

// has reports whether an item is one of the samples.
func (c FailedClass) has(item uint64) bool {
	return slices.ContainsFunc(c.Samples, func(s FailedSample) bool { return s.Item == item })
}

// samples are those of the runs that were asked for last. It is safe for concurrent use.
type samples struct {
	mu   sync.Mutex
	runs map[identity.RunID]foundSamples
}

// foundSamples are the classes of a run as they were found.
type foundSamples struct {
	ended   bool // the rows are those of the run's files then
	classes []FailedClass
}

// Bounds of samples: 3 MiB in all, as messages are shortened.
const (
	maxSampledRuns    = 64
	maxSampledClasses = 16
)

// take adds the samples of a run that are known. It returns true if looking again would not find more.
func (s *samples) take(p status.Progress, classes []FailedClass) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.runs[p.Manifest.Run]
	if !ok || found.ended != p.State.Phase.Ended() {
		return false
	}
	same := len(found.classes) == len(classes)
	for i := range classes {
		c := &classes[i]
		at := slices.IndexFunc(found.classes, func(f FailedClass) bool { return f.Class == c.Class })
		if at < 0 {
			same = false
			continue
		}
		same = same && found.classes[at].Count == c.Count
		c.Samples = append(c.Samples, found.classes[at].Samples...)
	}
	return same || missing(classes) == 0
}

// keep remembers the samples of a run.
func (s *samples) keep(p status.Progress, classes []FailedClass) {
	if len(classes) > maxSampledClasses {
		return
	}
	kept := slices.Clone(classes)
	for i := range kept {
		kept[i].Samples = slices.Clone(kept[i].Samples)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[identity.RunID]foundSamples{}
	}
	if _, known := s.runs[p.Manifest.Run]; !known && len(s.runs) == maxSampledRuns {
		for other := range s.runs { // any: it is only looked for again
			delete(s.runs, other)
			break
		}
	}
	s.runs[p.Manifest.Run] = foundSamples{p.State.Phase.Ended(), kept}
}
