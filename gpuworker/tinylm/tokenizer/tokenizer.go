package tokenizer

import (
	"encoding/hex"
	"fmt"
	"slices"

	"lukechampine.com/blake3"

	"rollout/shared/fault"
)

// The names of the special tokens. EndOfText ends a document and an assistant's
// turn; it is the model's only stop token. The others begin a turn of a chat.
const (
	EndOfText = "<|endoftext|>"
	System    = "<|system|>"
	User      = "<|user|>"
	Assistant = "<|assistant|>"
)

var specials = [...]string{EndOfText, System, User, Assistant}

// The limits of a vocabulary's size. The upper limit bounds the memory that a
// hostile file can request.
const (
	bytesOnly = 256
	MinVocab  = bytesOnly + len(specials)
	MaxVocab  = 1 << 16
)

// Merge is a pair of tokens that Encode joins into one token.
type Merge struct{ Left, Right int32 }

// Tokenizer encodes and decodes text with one vocabulary. It is immutable and
// safe for concurrent use.
type Tokenizer struct {
	merges []Merge // merge i makes token 256+i
	ranks  ranks
	pieces [][]byte // the bytes of each token; nil for special tokens
	hash   string
}

// New returns a tokenizer with the given merges, in order of rank. It returns an
// Invalid fault if a merge refers to a token that is not defined before it, or
// makes a token with the same bytes as another.
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
			return nil, fault.New(fault.Invalid, "merge %d joins tokens %d and %d: both must be from 0 to %d",
				i+1, m.Left, m.Right, id-1)
		}
		piece := slices.Concat(t.pieces[m.Left], t.pieces[m.Right])
		switch {
		case len(piece) > maxPiece:
			return nil, fault.New(fault.Invalid, "merge %d makes a token of %d bytes: at most %d are supported",
				i+1, len(piece), maxPiece)
		case spelt[string(piece)]:
			return nil, fault.New(fault.Invalid, "merge %d spells %q, as another token does", i+1, piece)
		}
		spelt[string(piece)] = true
		t.pieces = append(t.pieces, piece)
	}
	t.pieces = append(t.pieces, make([][]byte, len(specials))...)
	sum := blake3.Sum256(t.Bytes())
	t.hash = hex.EncodeToString(sum[:])
	return t, nil
}

// maxPiece is the maximum length of a token in bytes.
const maxPiece = 256

// none marks an absent rank or position.
const none = -1

// Hash returns the blake3-256 of Bytes, in hex. Two tokenizers with the same hash
// encode every text to the same ids.
func (t *Tokenizer) Hash() string { return t.hash }

// Vocab returns the number of tokens. Ids are from 0 to Vocab()-1.
func (t *Tokenizer) Vocab() int { return len(t.pieces) }

// Merges returns a copy of the merges, in order of rank: merge i makes token
// 256+i.
func (t *Tokenizer) Merges() []Merge { return slices.Clone(t.merges) }

// Special returns the id of the special token with that name, such as EndOfText.
func (t *Tokenizer) Special(name string) (id int32, ok bool) {
	i := slices.Index(specials[:], name)
	return int32(len(t.pieces) - len(specials) + i), i >= 0
}

// EndOfText returns the id of the stop token.
func (t *Tokenizer) EndOfText() int32 { return int32(len(t.pieces) - len(specials)) }

// SpecialName returns the name of a special token, or "" for any other id.
func (t *Tokenizer) SpecialName(id int32) string {
	if i := int(id) - (len(t.pieces) - len(specials)); i >= 0 && i < len(specials) {
		return specials[i]
	}
	return ""
}

// Piece returns the bytes of a token, which may be only a part of a character. It
// returns nil for a special token and for an id out of range. The caller must not
// change the bytes.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Decode returns the bytes of the tokens. Special tokens have no bytes. An id out
// of range is an Invalid fault.
func (t *Tokenizer) Decode(ids []int32) ([]byte, error) {
	var out []byte
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) {
			return nil, fault.New(fault.Invalid, "token %d at index %d: the vocabulary has ids 0 to %d",
				id, i, len(t.pieces)-1)
		}
		out = append(out, t.pieces[id]...)
	}
	return out, nil
}

// AppendTurn appends one turn of a chat: the role's token, the text and, for an
// assistant's turn, EndOfText. The roles are system (or developer), user and
// assistant; any other role is an Invalid fault.
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

// AppendGenerationPrompt appends the token after which an assistant's answer
// begins.
func (t *Tokenizer) AppendGenerationPrompt(dst []int32) []int32 {
	id, _ := t.Special(Assistant)
	return append(dst, id)
}

// roles maps a turn's role to its special token.
var roles = map[string]string{"system": System, "developer": System, "user": User, "assistant": Assistant}

// String describes the tokenizer for logs.
func (t *Tokenizer) String() string {
	return fmt.Sprintf("byte-level BPE, %d tokens, %.12s", t.Vocab(), t.hash)
}
