package status

import (
	"context"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/share"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Share is which part of a pool's requests a run may have, and why.
type Share struct {
	Pool string `json:"pool"`
	// Fraction is the run's part, from 0 to 1: Weight of Total. What another run does not
	// use, it gets, too.
	Fraction float64 `json:"fraction"`
	// Weight is the weight now: PriorityWeight, multiplied by Hurry as the deadline comes
	// near.
	Weight         float64 `json:"weight"`
	Priority       string  `json:"priority"` // its name; "" for a number
	PriorityWeight float64 `json:"priority_weight"`
	Hurry          float64 `json:"hurry"` // 1 without a deadline, and long before it
	// Total is the sum of the weights of all Runs, this one among them.
	Total float64 `json:"total_weight"`
	Runs  int     `json:"runs"`
	// Requests are those of the run that are in flight in the pool now, AllRequests those
	// of all runs. Both are of the workers' last heartbeats.
	Requests    int `json:"requests"`
	AllRequests int `json:"all_requests"`
}

// countRequests counts the requests in flight at the pool's living workers.
func (s *Share) countRequests(id identity.RunID, workers []WorkerStatus) {
	for _, w := range workers {
		if !w.Alive || w.Pool != s.Pool {
			continue
		}
		s.AllRequests += w.Load.InFlight
		s.Requests += loadOf(id, w, w.HeldOf(id)).InFlight
	}
}

// sharesOf returns the run's shares of the pools that it needs now, by the documents of
// pools: none while it sends nothing.
func sharesOf(p Progress, now time.Time) []Share {
	out := []Share{}
	if p.Kind.Trains || p.Manifest.Refused != "" || p.State.Phase != run.Running {
		return out
	}
	part := p.Manifest.Part()
	for _, pool := range p.Manifest.NeededPools(p.State) {
		doc := p.Shares[pool]
		s := Share{Pool: pool, Fraction: doc.Fraction(part, now), Weight: part.WeightAt(now),
			Priority: config.PriorityName(part.Weight), PriorityWeight: part.Weight, Hurry: part.Hurry(now),
			Total: doc.Total(now), Runs: len(doc.Runs)}
		if _, listed := doc.Find(part.Run); !listed { // it is taken up just now
			s.Total, s.Runs = s.Total+s.Weight, s.Runs+1
		}
		s.countRequests(part.Run, p.Workers)
		out = append(out, s)
	}
	return out
}

// shares reads which runs share the pools that the runs need.
func (r *Reader) shares(ctx context.Context, ps []Progress) (map[string]share.Doc, error) {
	out := map[string]share.Doc{}
	var keys, pools []string
	for _, p := range ps {
		if p.Manifest.Refused != "" || p.State.Phase != run.Running {
			continue
		}
		for _, pool := range p.Manifest.NeededPools(p.State) {
			if _, ok := out[pool]; !ok && len(keys) < document.MaxKeys {
				out[pool] = share.Doc{}
				keys, pools = append(keys, record.ShareKey(pool)), append(pools, pool)
			}
		}
	}
	if len(keys) == 0 {
		return out, nil
	}
	docs, err := r.ports.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the shares of the pools")
	}
	for i, raw := range docs {
		var d share.Doc
		if err := decodeDoc(raw, &d); err != nil {
			return nil, err
		}
		out[pools[i]] = d
	}
	return out, nil
}
