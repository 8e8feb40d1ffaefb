package corpus

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"rollout/shared/fault"
)

// Verse is a verse of the Bible.
type Verse struct {
	Book    string // abbreviation of the data file. Example: "1Ki"
	Chapter int
	Number  int
	Text    string
}

// Name returns the name of the verse in the data file. Example: "1Ki3:9"
func (v Verse) Name() string {
	return v.Book + strconv.Itoa(v.Chapter) + ":" + strconv.Itoa(v.Number)
}

// The format of bible-kjv-text's data file. It is big-endian: the magic, a title,
// the size of a window of text at windowAt, the number of windows, and the offsets,
// one more than windows. The text between two offsets is compressed separately, by
// compress(1) without its header.
const (
	magic     = "EC02"
	windowAt  = 0x54
	offsetsAt = 0x5c

	maxWindow  = 1 << 20
	maxWindows = 1 << 12
)

// KJV returns the verses of the King James Bible, in order. data is the contents of
// /usr/lib/bible.data of Debian's package bible-kjv-text. Other contents are a
// Corrupt fault.
func KJV(data []byte) ([]Verse, error) {
	if len(data) < offsetsAt || !bytes.HasPrefix(data, []byte(magic)) {
		return nil, fault.New(fault.Corrupt, "this is not the data file of bible-kjv-text: it does not begin with %q",
			magic)
	}
	window := int(binary.BigEndian.Uint32(data[windowAt:]))
	count := int(binary.BigEndian.Uint32(data[windowAt+4:]))
	if window > maxWindow || count > maxWindows || len(data) < offsetsAt+4*(count+1) {
		return nil, fault.New(fault.Corrupt, "bible.data: %d windows of %d bytes do not fit into a file of %d bytes",
			count, window, len(data))
	}
	var text []byte
	for i := range count {
		from := int(binary.BigEndian.Uint32(data[offsetsAt+4*i:]))
		to := int(binary.BigEndian.Uint32(data[offsetsAt+4*i+4:]))
		if from > to || to > len(data) {
			return nil, fault.New(fault.Corrupt, "bible.data: window %d lies from byte %d to %d of %d",
				i, from, to, len(data))
		}
		part, err := decompress(data[from:to], window)
		if err != nil {
			return nil, fault.Wrap(err, "bible.data: window %d", i)
		}
		text = append(text, part...)
	}
	return verses(string(text))
}

// verses parses lines such as "Ge1:1 In the beginning …", after a line with a title.
func verses(text string) ([]Verse, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	out := make([]Verse, 0, len(lines))
	for i, line := range lines[1:] {
		name, text, _ := strings.Cut(line, " ")
		place, number, _ := strings.Cut(name, ":")
		book := strings.TrimRight(place, "0123456789")
		chapter, err := strconv.Atoi(place[len(book):])
		if err != nil || book == "" || text == "" {
			return nil, fault.New(fault.Corrupt, "bible.data: line %d is not a verse: %.60q", i+2, line)
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fault.New(fault.Corrupt, "bible.data: line %d has no verse number: %.60q", i+2, line)
		}
		out = append(out, Verse{Book: book, Chapter: chapter, Number: n, Text: text})
	}
	return out, nil
}
