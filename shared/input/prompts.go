package input

import (
	"fmt"
	"path"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// suffixes end the names of prompts files, by packing.
var suffixes = [...]struct{ suffix, packed string }{{".jsonl", ""}, {".jsonl.gz", Gzip}, {".jsonl.zst", Zstd}}

// SplitName splits the name of a prompts file: "a/x.jsonl.gz" has the stem
// "a/x" and is packed with Gzip. ok is false for the name of any other file,
// whose stem is the whole name.
func SplitName(name string) (stem, packed string, ok bool) {
	for _, s := range suffixes {
		if stem, ok := strings.CutSuffix(name, s.suffix); ok {
			return stem, s.packed, true
		}
	}
	return name, "", false
}

// Packing returns the packing of a prompts file; ok is false for the name of
// any other file.
func Packing(name string) (packed string, ok bool) {
	_, packed, ok = SplitName(name)
	return packed, ok
}

// Suffix returns the end of the names of prompts files with that packing.
// Example: ".jsonl.gz". It returns "" for an unknown packing.
func Suffix(packed string) string {
	for _, s := range suffixes {
		if s.packed == packed {
			return s.suffix
		}
	}
	return ""
}

// Twins returns the names of prompts files that differ from name in their packing alone.
func Twins(name string) (out []string) {
	stem, packed, ok := SplitName(name)
	for _, s := range suffixes {
		if ok && s.packed != packed {
			out = append(out, stem+s.suffix)
		}
	}
	return out
}

// IsPromptsKey reports whether an object becomes a run when it is uploaded: a
// prompts file under prompts/, not hidden by a dot at the front of a part of
// its key.
func IsPromptsKey(key string) bool {
	_, _, ok := SplitName(key)
	return ok && strings.HasPrefix(key, record.PromptsPrefix) && !strings.Contains(key, "/.")
}

// CheckPromptsKey returns an Invalid error that says why the object would not
// become a run.
func CheckPromptsKey(key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	if !strings.HasPrefix(key, record.PromptsPrefix) {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("object %q is not under %s", key, record.PromptsPrefix),
			Remedy: "upload it there: only objects under " + record.PromptsPrefix + " become runs"}
	}
	if !IsPromptsKey(key) {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("object %q is not a prompts file by its name", key),
			Remedy: NameRemedy(key)}
	}
	return nil
}

// NameRemedy says what to do with a file that is not a prompts file by its name: how to convert one of another format,
// else how to name it.
func NameRemedy(name string) string {
	plain := strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	switch path.Ext(plain) {
	case ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".pq":
		return "convert it to JSON lines with " + jsonl.ConvertCommand(name, "")
	}
	return "end its name in .jsonl, .jsonl.gz or .jsonl.zst"
}
