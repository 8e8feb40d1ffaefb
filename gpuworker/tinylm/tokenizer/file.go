package tokenizer

import (
	"bytes"
	"strings"

	"rollout/shared/fault"
)

// header is the first line of a tokenizer's file: format and version.
const header = "#rollout-bpe 1"

// Bytes returns the tokenizer as a text file that Parse reads. After the header,
// it has a line for each merge in order of rank: the two tokens as ByteLevel
// spells them, separated by a space, as in GPT-2's merges.txt.
func (t *Tokenizer) Bytes() []byte {
	var b bytes.Buffer
	b.WriteString(header + "\n")
	for _, m := range t.merges {
		b.WriteString(ByteLevel(t.pieces[m.Left]) + " " + ByteLevel(t.pieces[m.Right]) + "\n")
	}
	return b.Bytes()
}

// Parse reads a file that Bytes returned. Faults are Corrupt and name the line.
func Parse(b []byte) (*Tokenizer, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if lines[0] != header {
		return nil, fault.New(fault.Corrupt, "tokenizer: line 1 is not %q", header)
	}
	if len(lines)-1 > MaxVocab-MinVocab {
		return nil, fault.New(fault.Corrupt, "tokenizer: %d merges: at most %d are supported",
			len(lines)-1, MaxVocab-MinVocab)
	}
	ids := make(map[string]int32, bytesOnly+len(lines))
	for c := range bytesOnly {
		ids[string([]byte{byte(c)})] = int32(c)
	}
	merges := make([]Merge, 0, len(lines)-1)
	for i, line := range lines[1:] {
		m, piece, err := parseMerge(ids, line)
		if err != nil {
			return nil, fault.WithKind(fault.Corrupt, err, "tokenizer: line %d", i+2)
		}
		if len(piece) > maxPiece {
			return nil, fault.New(fault.Corrupt, "tokenizer: line %d: a token of %d bytes: at most %d are supported",
				i+2, len(piece), maxPiece)
		}
		merges = append(merges, m)
		ids[piece] = int32(bytesOnly + i)
	}
	t, err := New(merges)
	return t, fault.WithKind(fault.Corrupt, err, "tokenizer")
}

// parseMerge parses one line. ids maps the bytes of all earlier tokens to their
// ids. parseMerge returns the merge and the bytes of the new token.
func parseMerge(ids map[string]int32, line string) (Merge, string, error) {
	l, r, found := strings.Cut(line, " ")
	if !found {
		return Merge{}, "", fault.New(fault.Corrupt, "no space between two tokens")
	}
	var m Merge
	var piece string
	for _, side := range []struct {
		text string
		id   *int32
	}{{l, &m.Left}, {r, &m.Right}} {
		b, ok := bytesOf(side.text)
		id, known := ids[string(b)]
		if !ok || !known {
			return Merge{}, "", fault.New(fault.Corrupt, "%.40q is not an earlier token", side.text)
		}
		*side.id = id
		piece += string(b)
	}
	return m, piece, nil
}
