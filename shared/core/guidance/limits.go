package guidance

// Limits bound a mission's guidance and the plans that change it. They are enforced,
// and prompts state them too.
type Limits struct {
	Entries    int // most entries
	EntryBytes int // most bytes of an entry's text, in UTF-8
	// TotalTokens is the most tokens of all numbered entries together, without the
	// scaffold. It is an estimate that needs no tokenizer: (bytes + 3) / 4.
	TotalTokens int
	Operations  int // most operations of a plan
}

// Check returns a *Refused that says which limit the guidance exceeds, or nil.
func (l Limits) Check(g Guidance) error {
	if len(g.Entries) > l.Entries {
		return refuse(TooManyEntries, "the guidance has %d entries, and at most %d are allowed", len(g.Entries), l.Entries)
	}
	for i, e := range g.Entries {
		if len(e.Text) > l.EntryBytes {
			return refuse(EntryTooLong, "entry %d has %d bytes, and at most %d are allowed", i+1, len(e.Text), l.EntryBytes)
		}
	}
	if n := g.Tokens(); n > l.TotalTokens {
		return refuse(TooManyTokens, "the entries have about %d tokens, and at most %d are allowed", n, l.TotalTokens)
	}
	return nil
}

// Tokens estimates the tokens of the numbered entries; see Limits.TotalTokens.
func (g Guidance) Tokens() int { return (len(g.list()) + 3) / 4 }
