package guidance

import "slices"

// Applying is what a plan is judged by when it is applied.
type Applying struct {
	Limits Limits
	// Evidence reports whether the key is that of a ticket of the batch; nil accepts
	// every key.
	Evidence func(key string) bool
}

// Apply returns the step after g. A plan without operations is valid and returns g
// itself: no step is made. The error is a *Refused; then the returned guidance is g,
// unchanged. A refusal does not depend on the order of the operations either.
//
// Whether the plan copies a ticket is not checked here, but by a CopyGuard.
func (g Guidance) Apply(p Plan, in Applying) (Guidance, error) {
	ops, err := canonical(p.Operations, in.Limits)
	if err != nil {
		return g, err
	}
	if len(ops) == 0 {
		return g, nil
	}
	if err := g.admit(ops, in.Evidence); err != nil {
		return g, err
	}
	next := g
	next.Step, next.From = g.Step+1, g.ContentID().String()
	next.Entries = deduplicate(change(g.Entries, ops, next.Step))
	switch {
	case len(next.Entries) == 0:
		return g, refuse(Empties, "no entry would be left")
	case next.sameTexts(g):
		return g, refuse(NoChange, "the entries would be the same as before")
	}
	if err := in.Limits.Check(next); err != nil {
		return g, err
	}
	return next, nil
}

// admit checks the operations against the guidance and the batch. They are in canonical
// order.
func (g Guidance) admit(ops []Operation, evidence func(string) bool) error {
	if err := conflicts(ops); err != nil {
		return err
	}
	lines := g.scaffoldLines()
	for _, op := range ops {
		if n := len(op.Entries); n > 0 && op.Entries[n-1] > len(g.Entries) {
			return refuse(NoSuchEntry, "%v: the guidance has %d entries", op, len(g.Entries))
		}
		for _, key := range op.Evidence {
			if evidence != nil && !evidence(key) {
				return refuse(UnknownEvidence, "%v: %.64q is not a ticket of this batch", op, key)
			}
		}
		if line, ok := containsLine(lines, op.Text); ok {
			return refuse(TouchesScaffold, "%v: the text repeats the scaffold's line %.100q", op, line)
		}
	}
	return nil
}

// change returns the entries after the operations, which are in canonical order and
// free of conflicts. What is kept stays in its order, and what is added comes last.
func change(old []Entry, ops []Operation, step int) []Entry {
	entries := slices.Clone(old)
	gone := make([]bool, len(old))
	for _, op := range ops {
		switch op.Kind {
		case Rewrite, Merge:
			first := &entries[op.Entries[0]-1]
			for _, n := range op.Entries[1:] {
				first.join(entries[n-1])
				gone[n-1] = true
			}
			first.Text, first.Since = op.Text, step
		case Drop:
			for _, n := range op.Entries {
				gone[n-1] = true
			}
		case Add:
			entries = append(entries, Entry{Text: op.Text, Since: step})
		}
	}
	var out []Entry
	for i, e := range entries {
		if i >= len(gone) || !gone[i] {
			out = append(out, e)
		}
	}
	return out
}

// join adds the counts of another entry.
func (e *Entry) join(o Entry) {
	e.Hits += o.Hits
	e.Misses += o.Misses
	e.LastUsed = max(e.LastUsed, o.LastUsed)
}

// deduplicate joins entries that differ by case alone to the first of them.
func deduplicate(entries []Entry) []Entry {
	at := make(map[string]int, len(entries))
	var out []Entry
	for _, e := range entries {
		key := foldCase(e.Text)
		if i, ok := at[key]; ok {
			out[i].join(e)
			continue
		}
		at[key] = len(out)
		out = append(out, e)
	}
	return out
}
