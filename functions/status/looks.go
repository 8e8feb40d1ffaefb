package status

// Looks are the looks at a run of trials that prunes variants.
type Looks struct {
	Decided int             `json:"decided"`
	Of      int             `json:"of"`
	Pruned  []PrunedVariant `json:"pruned"` // in the order in which they were pruned; never null
}

// PrunedVariant is a variant that a look has pruned.
type PrunedVariant struct {
	Variant string `json:"variant"`
	From    int    `json:"from"` // the schedule index from which on it is not tried
	Why     string `json:"why"`  // Example: "look 3 of 10: its score …"
}

// setLooks sets how far the looks of a run are that prunes.
func (s *Status) setLooks(p Progress) {
	places := p.Kind.PlacesOf(p.Manifest, p.Plan.Shards)
	if len(places) == 0 {
		return
	}
	s.Looks = &Looks{Decided: p.State.Looks, Of: len(places) - 1, Pruned: []PrunedVariant{}}
	for _, v := range p.Plan.Pruned {
		if vs := p.Manifest.Config.Variants; p.State.Pruned.HasVariant(v.Variant) && int(v.Variant) < len(vs) {
			s.Looks.Pruned = append(s.Looks.Pruned, PrunedVariant{vs[v.Variant].Name, v.From, v.Why})
		}
	}
}
