package tokenizer

import (
	"encoding/hex"
	"fmt"
	"slices"

	"lukechampine.com/blake3"

	"rollout/shared/fault"
)

// The special tokens, by name. EndOfText ends a document and an assistant's
// turn: it is the model's only stop token. The others open a turn of a chat.
const (
	EndOfText = "<|endoftext|>"
	System    = "<|system|>"
	User      = "<|user|>"
	Assistant = "<|assistant|>"
)

var specials = [...]string{EndOfText, System, User, Assistant}

// The sizes that a vocabulary may have. The upper bound keeps hostile files
// small; this engine is for tiny models.
const (
	bytesOnly = 256
	MinVocab  = bytesOnly + len(specials)
	MaxVocab  = 1 << 16
)

// Merge is two tokens that become one.
type Merge struct{ Left, Right int32 }

// Tokenizer is a vocabulary. It is immutable and safe for concurrent use.
type Tokenizer struct {
	merges []Merge // merge i makes token 256+i
	ranks  ranks
	pieces [][]byte // what each token spells; nil for special ones
	hash   string
}

// New returns the tokenizer of the merges, in order of rank. It fails with
// Invalid if a merge names a token that is not there yet, or spells what
// another token does.
func New(merges []Merge) (*Tokenizer, error) {
	if n := MinVocab + len(merges); n > MaxVocab {
		return nil, fault.New(fault.Invalid, "a vocabulary of %d tokens: at most %d are supported", n, MaxVocab)
	}
	t := &Tokenizer{merges: slices.Clone(merges), ranks: newRanks(merges)}
	for c := range bytesOnly {
		t.pieces = append(t.pieces, []byte{byte(c)})
	}
	spelt := make(map[string]bool, len(merges))
	for i, m := range merges {
		id := int32(bytesOnly + i)
		if m.Left < 0 || m.Right < 0 || m.Left >= id || m.Right >= id {
			return nil, fault.New(fault.Invalid, "merge %d joins tokens %d and %d: both must be below %d", i+1, m.Left, m.Right, id)
		}
		piece := slices.Concat(t.pieces[m.Left], t.pieces[m.Right])
		switch {
		case len(piece) > maxPiece:
			return nil, fault.New(fault.Invalid, "merge %d makes a token of %d bytes: at most %d are supported", i+1, len(piece), maxPiece)
		case spelt[string(piece)]:
			return nil, fault.New(fault.Invalid, "merge %d spells %q, which another token does too", i+1, piece)
		}
		spelt[string(piece)] = true
		t.pieces = append(t.pieces, piece)
	}
	t.pieces = append(t.pieces, make([][]byte, len(specials))...)
	sum := blake3.Sum256(t.Bytes())
	t.hash = hex.EncodeToString(sum[:])
	return t, nil
}

// maxPiece is the longest token in bytes.
const maxPiece = 256

// none is no rank and no position.
const none = -1

// Hash is the blake3-256, in hex, of Bytes: two tokenizers of one hash give
// the same ids for everything.
func (t *Tokenizer) Hash() string { return t.hash }

// Vocab is the number of tokens; ids are below it.
func (t *Tokenizer) Vocab() int { return len(t.pieces) }

// Merges returns a copy of the merges, in order of rank: merge i makes token
// 256+i.
func (t *Tokenizer) Merges() []Merge { return slices.Clone(t.merges) }

// Special returns the id of a special token by its name, such as EndOfText.
func (t *Tokenizer) Special(name string) (id int32, ok bool) {
	i := slices.Index(specials[:], name)
	return int32(len(t.pieces) - len(specials) + i), i >= 0
}

// EndOfText is the id of the stop token.
func (t *Tokenizer) EndOfText() int32 { return int32(len(t.pieces) - len(specials)) }

// SpecialName returns the name of a special token, and "" for every other id.
func (t *Tokenizer) SpecialName(id int32) string {
	if i := int(id) - (len(t.pieces) - len(specials)); i >= 0 && i < len(specials) {
		return specials[i]
	}
	return ""
}

// Piece returns the bytes that a token spells, which may be a part of a
// character; none for a special token and for an id out of range. The caller
// must not change them.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Decode returns the bytes that the tokens spell; special ones spell nothing.
// It fails with Invalid for an id out of range.
func (t *Tokenizer) Decode(ids []int32) ([]byte, error) {
	var out []byte
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) {
			return nil, fault.New(fault.Invalid, "token %d, at place %d: the vocabulary has the ids 0 to %d", id, i, len(t.pieces)-1)
		}
		out = append(out, t.pieces[id]...)
	}
	return out, nil
}

// AppendTurn appends one turn of a chat: the role's token, the text and, after
// an assistant's, EndOfText. The roles are system (also spelt developer), user
// and assistant; others are Invalid.
func (t *Tokenizer) AppendTurn(dst []int32, role, text string) ([]int32, error) {
	name, ok := roles[role]
	if !ok {
		return nil, fault.New(fault.Invalid, "role %q: this model knows system, user and assistant", role)
	}
	id, _ := t.Special(name)
	dst = t.Encode(append(dst, id), text)
	if name == Assistant {
		dst = append(dst, t.EndOfText())
	}
	return dst, nil
}

// AppendGenerationPrompt appends what an assistant's answer begins after.
func (t *Tokenizer) AppendGenerationPrompt(dst []int32) []int32 {
	id, _ := t.Special(Assistant)
	return append(dst, id)
}

var roles = map[string]string{"system": System, "developer": System, "user": User, "assistant": Assistant}

// String describes the tokenizer in a log line.
func (t *Tokenizer) String() string {
	return fmt.Sprintf("byte-level BPE, %d tokens, %.12s", t.Vocab(), t.hash)
}
