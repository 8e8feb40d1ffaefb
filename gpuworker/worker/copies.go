package worker

import "rollout/shared/result"

// copies settles the items that get copies of others' answers: they are never
// asked, and count as answered. Their lines stand for the rows that are made
// of them at the run's end.
func (s *Shard) copies() {
	for i, l := range s.Lines {
		if l.Original == nil {
			continue
		}
		s.rows[i] = append(append(make([]byte, 0, len(l.Bytes)+1), l.Bytes...), '\n')
		s.counts.OK++
		s.left--
		s.open--
		s.saved--
	}
}

// copied says whose answer the item gets; nil if its own.
func (s *Shard) copied(item int) *result.Copied {
	l := s.Lines[item]
	if l.Original == nil {
		return nil
	}
	return &result.Copied{Original: l.Original.Item, Line: l.Place.Line}
}
