package tokenizer

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"rollout/shared/fault"
)

// Train learns a vocabulary of the given size from documents. It repeatedly makes
// the most frequent pair of tokens within words a new token; of equally frequent
// pairs, the one with the lowest ids. It skips pairs that spell the same as an
// existing token. The result does not depend on the order of the documents. Train
// returns an Invalid fault if the size is out of range, or if the documents have
// too few different pairs.
func Train(documents iter.Seq[string], vocab int) (*Tokenizer, error) {
	if vocab < MinVocab || vocab > MaxVocab {
		return nil, fault.New(fault.Invalid, "a vocabulary of %d tokens: it must have %d to %d", vocab, MinVocab, MaxVocab)
	}
	l := newLearner(documents)
	var merges []Merge
	for len(merges) < vocab-MinVocab {
		m, ok := l.best()
		if !ok {
			return nil, fault.New(fault.Invalid, "the documents have pairs for only %d tokens, not for %d: "+
				"use more text or a smaller vocabulary", MinVocab+len(merges), vocab)
		}
		l.join(m, int32(bytesOnly+len(merges)))
		merges = append(merges, m)
	}
	return New(merges)
}

// learner holds the distinct words of the documents as sequences of the tokens
// learnt so far.
type learner struct {
	words  []wordCount
	counts map[Merge]int64        // occurrences of each pair
	where  map[Merge]map[int]bool // indexes of words that may contain the pair
	pieces [][]byte               // bytes of each token
	spelt  map[string]bool        // bytes of all merges
}

// wordCount is a word and its number of occurrences in the documents.
type wordCount struct {
	ids   []int32
	count int64
}

// maxWord is the maximum length in bytes of the words that Train uses. Longer
// ones are not natural words.
const maxWord = 64

func newLearner(documents iter.Seq[string]) *learner {
	counts := make(map[string]int64)
	for text := range documents {
		for text != "" {
			n := word(text)
			if n <= maxWord {
				counts[text[:n]]++
			}
			text = text[n:]
		}
	}
	l := &learner{counts: make(map[Merge]int64), where: make(map[Merge]map[int]bool), spelt: make(map[string]bool)}
	for c := range bytesOnly {
		l.pieces = append(l.pieces, []byte{byte(c)})
	}
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		ids := make([]int32, len(w))
		for i := range ids {
			ids[i] = int32(w[i])
		}
		l.words = append(l.words, wordCount{ids, counts[w]})
		l.count(len(l.words)-1, +1)
	}
	return l
}

// count adds the pairs of a word to the counts (sign is 1) or subtracts them
// (sign is -1).
func (l *learner) count(i int, sign int64) {
	w := l.words[i]
	for at := range len(w.ids) - 1 {
		m := Merge{w.ids[at], w.ids[at+1]}
		l.counts[m] += sign * w.count
		if l.counts[m] == 0 {
			delete(l.counts, m)
			delete(l.where, m)
			continue
		}
		if sign > 0 {
			if l.where[m] == nil {
				l.where[m] = make(map[int]bool)
			}
			l.where[m][i] = true
		}
	}
}

// best returns the next pair to join, or false if none is left.
func (l *learner) best() (best Merge, found bool) {
	var most int64
	for m, n := range l.counts {
		if n < most || n == most && cmp.Or(cmp.Compare(m.Left, best.Left), cmp.Compare(m.Right, best.Right)) > 0 {
			continue
		}
		if l.spelt[l.spell(m)] || len(l.spell(m)) > maxPiece {
			continue
		}
		best, most, found = m, n, true
	}
	return best, found
}

// spell returns the bytes of the token that m makes.
func (l *learner) spell(m Merge) string {
	return string(l.pieces[m.Left]) + string(l.pieces[m.Right])
}

// join replaces the pair by the token id in all words.
func (l *learner) join(m Merge, id int32) {
	l.spelt[l.spell(m)] = true
	l.pieces = append(l.pieces, []byte(l.spell(m)))
	for i := range l.where[m] {
		l.count(i, -1)
		ids := l.words[i].ids[:0]
		for at := 0; at < len(l.words[i].ids); at++ {
			if w := l.words[i].ids; at+1 < len(w) && w[at] == m.Left && w[at+1] == m.Right {
				ids = append(ids, id)
				at++
			} else {
				ids = append(ids, w[at])
			}
		}
		l.words[i].ids = ids
		l.count(i, +1)
	}
}
