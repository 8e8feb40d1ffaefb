package pretrain

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/scripts/tinymodel/corpus"
	"rollout/shared/fault"
)

// Stream holds the tokens of all documents in one slice, in an order that depends
// on the seed. EndOfText follows each document.
type Stream struct {
	tokens []int32
	seed   uint64
	digest string
}

// NewStream encodes documents. It encodes chats as turns. The result does not depend
// on the order of documents.
func NewStream(t *tokenizer.Tokenizer, documents []corpus.Document, seed uint64) (*Stream, error) {
	s := &Stream{seed: seed}
	documents = slices.Clone(documents)
	slices.SortStableFunc(documents, func(a, b corpus.Document) int {
		return cmp.Compare(s.draw("document", a.ID), s.draw("document", b.ID))
	})
	for _, d := range documents {
		s.tokens = t.Encode(s.tokens, d.Text)
		for _, m := range d.Messages {
			var err error
			if s.tokens, err = t.AppendTurn(s.tokens, m.Role, m.Content); err != nil {
				return nil, fault.Wrap(err, "document %s", d.ID)
			}
		}
		if len(s.tokens) == 0 || s.tokens[len(s.tokens)-1] != t.EndOfText() {
			s.tokens = append(s.tokens, t.EndOfText())
		}
	}
	h := blake3.New(32, nil)
	for _, id := range s.tokens {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
	}
	s.digest = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// Len returns the number of tokens.
func (s *Stream) Len() int { return len(s.tokens) }

// Digest returns the blake3-256 of the tokens, in hex.
func (s *Stream) Digest() string { return s.digest }

// windows returns the number of sequences of an epoch.
func (s *Stream) windows(length int) int { return (len(s.tokens) - length) / length }

// Batch returns the size sequences of a step; steps count from 0. Each epoch cuts
// the stream into sequences of length tokens, from its own offset, and has each
// sequence once, in its own order.
func (s *Stream) Batch(step, size, length int) []model.Sequence {
	out := make([]model.Sequence, size)
	n := s.windows(length)
	epoch, order := -1, []int(nil)
	for i := range out {
		at := step*size + i
		if at/n != epoch {
			epoch = at / n
			order = s.order(epoch, n)
		}
		from := int(s.draw("offset", number(epoch))%uint64(length)) + order[at%n]*length
		out[i] = model.Sequence{Tokens: s.tokens[from : from+length], Targets: s.tokens[from+1 : from+length+1]}
	}
	return out
}

// order returns the numbers from 0 to n-1, shuffled for an epoch.
func (s *Stream) order(epoch, n int) []int {
	type drawn struct {
		key uint64
		at  int
	}
	all := make([]drawn, n)
	key := s.draw("order", number(epoch))
	for i := range all {
		all[i] = drawn{mix(key + uint64(i)*0x9e3779b97f4a7c15), i}
	}
	slices.SortFunc(all, func(a, b drawn) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at)) })
	out := make([]int, n)
	for i, d := range all {
		out[i] = d.at
	}
	return out
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// draw returns a pseudo-random number that depends only on the seed, its use and a
// name.
func (s *Stream) draw(use, name string) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, s.seed)
	sum := blake3.Sum256(append(b, use+"\x00"+name...))
	return binary.LittleEndian.Uint64(sum[:])
}

// number returns n as a name for draw.
func number(n int) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
