package tokenizer

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"rollout/shared/fault"
)

// Train learns a vocabulary of the given size from documents: again and again,
// the pair of tokens that is most frequent within words becomes a token (of
// equally frequent ones that of the lowest ids), unless another token spells
// the same. The same documents give the same tokenizer, in any order. It
// fails with Invalid if the size is out of range, or the documents have too
// few different pairs for it.
func Train(documents iter.Seq[string], vocab int) (*Tokenizer, error) {
	if vocab < MinVocab || vocab > MaxVocab {
		return nil, fault.New(fault.Invalid, "a vocabulary of %d tokens: it must have %d to %d", vocab, MinVocab, MaxVocab)
	}
	l := newLearner(documents)
	var merges []Merge
	for len(merges) < vocab-MinVocab {
		m, ok := l.best()
		if !ok {
			return nil, fault.New(fault.Invalid, "the documents have pairs for %d tokens alone, not for %d: take more text or a smaller vocabulary", MinVocab+len(merges), vocab)
		}
		l.join(m, int32(bytesOnly+len(merges)))
		merges = append(merges, m)
	}
	return New(merges)
}

// learner is the words of the documents, cut into the tokens learnt so far.
type learner struct {
	words  []learnt
	counts map[Merge]int64        // how often a pair occurs
	where  map[Merge]map[int]bool // the words in which it may occur
	pieces [][]byte
	spelt  map[string]bool
}

type learnt struct {
	ids   []int32
	count int64
}

// maxWord is the longest word, in bytes, that is learnt from: longer ones are
// no words.
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
		l.words = append(l.words, learnt{ids, counts[w]})
		l.count(len(l.words)-1, +1)
	}
	return l
}

// count adds or takes away the pairs of a word.
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

// best returns the pair to join next.
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

func (l *learner) spell(m Merge) string {
	return string(l.pieces[m.Left]) + string(l.pieces[m.Right])
}

// join makes the pair the token id, wherever it occurs.
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
