package jsonl

import (
	"bytes"

	"rollout/shared/fault"
)

// SniffLen is how many bytes of a file Sniff needs.
const SniffLen = 8

// magics are the first bytes of files that are often uploaded instead of JSON lines.
// UTF-32LE comes before UTF-16LE, because its mark begins with that of UTF-16LE.
var magics = [...]struct{ prefix, name, remedy string }{
	{"\xFF\xFE\x00\x00", "UTF-32LE", utf8Remedy},
	{"\x00\x00\xFE\xFF", "UTF-32BE", utf8Remedy},
	{"\xFF\xFE", "UTF-16LE", utf8Remedy},
	{"\xFE\xFF", "UTF-16BE", utf8Remedy},
	{"\x1F\x8B", "gzip", "end its name in .jsonl.gz"},
	{"\x28\xB5\x2F\xFD", "zstd", "end its name in .jsonl.zst"},
	{"BZh", "bzip2", unpackRemedy},
	{"\xFD7zXZ\x00", "xz", unpackRemedy},
	{"PK\x03\x04", "zip", unpackRemedy},
}

const (
	utf8Remedy   = "convert it to UTF-8, for example with iconv -t UTF-8"
	unpackRemedy = "unpack it, or pack it with gzip or zstd"
)

// Sniff recognizes files that cannot be JSON lines by their first SniffLen bytes: other
// encodings, and packed files. It returns Invalid with the name of the format.
func Sniff(head []byte) error {
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.prefix)) {
			return refuse(m.name, m.remedy)
		}
	}
	if name := wideText(head); name != "" {
		return refuse(name, utf8Remedy)
	}
	return nil
}

// wideText recognizes text with two or four bytes for a character and without a mark:
// JSON begins with ASCII and has no NUL.
func wideText(head []byte) string {
	if len(head) < 4 {
		return ""
	}
	var nul [4]bool
	for i := range nul {
		nul[i] = head[i] == 0
	}
	switch nul {
	case [4]bool{false, true, true, true}:
		return "UTF-32LE"
	case [4]bool{true, true, true, false}:
		return "UTF-32BE"
	case [4]bool{false, true, false, true}:
		return "UTF-16LE"
	case [4]bool{true, false, true, false}:
		return "UTF-16BE"
	}
	return ""
}

func refuse(name, remedy string) error {
	return &fault.Error{Kind: fault.Invalid, Remedy: remedy,
		Err: fault.New(fault.Invalid, "the file is %s, not JSON lines in UTF-8", name)}
}
