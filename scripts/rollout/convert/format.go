package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/input"
)

// Names of formats, as --from and --to take them. JSON and JSONL are read alike: any number of objects and arrays of
// objects, on as many lines as they like. JSON cannot be written.
const (
	JSON    = "json"
	JSONL   = "jsonl"
	CSV     = "csv"
	TSV     = "tsv"
	Parquet = "parquet"
)

// Std is the name of standard input and of standard output.
const Std = "-"

// extensions are the endings of file names, without those of packed files.
var extensions = map[string]string{
	".json": JSON, ".jsonl": JSONL, ".ndjson": JSONL, ".csv": CSV, ".tsv": TSV, ".parquet": Parquet, ".pq": Parquet,
}

// packings are the endings of the names of packed files.
var packings = map[string]string{".gz": input.Gzip, ".zst": input.Zstd}

// byName returns the format and the packing that a file's name says. Either is "" if it says none.
func byName(name string) (format, packing string) {
	ext := strings.ToLower(filepath.Ext(name))
	if p, ok := packings[ext]; ok {
		packing, name = p, name[:len(name)-len(ext)]
		ext = strings.ToLower(filepath.Ext(name))
	}
	return extensions[ext], packing
}

// inputFormat returns the format of an input.
func inputFormat(name, from string) (string, error) {
	switch from {
	case JSON, JSONL, CSV, TSV, Parquet:
		return from, nil
	case "":
	default:
		return "", invalid("--from json, jsonl, csv, tsv or parquet", "the input format %q is unknown", from)
	}
	format, _ := byName(name)
	switch {
	case format != "":
		return format, nil
	case name == Std:
		return JSONL, nil
	}
	return "", invalid("say it with --from json, jsonl, csv, tsv or parquet",
		"the name %s does not say the format of the input", name)
}

// outputFormat returns the format and the packing of an output.
func outputFormat(name, to string) (format, packing string, err error) {
	format, packing = byName(name)
	if to != "" {
		format = to
	}
	switch format {
	case JSONL, CSV, TSV:
		return format, packing, nil
	case Parquet:
		if packing != "" {
			return "", "", invalid(
				"end its name in .parquet",
				"a Parquet file compresses its columns itself: %s packs it again",
				name,
			)
		}
		return format, "", nil
	case "":
		if name == Std {
			return JSONL, "", nil
		}
		return "", "", invalid("say it with --to jsonl, csv, tsv or parquet",
			"the name %s does not say the format of the output", name)
	}
	return "", "", invalid("write jsonl, csv, tsv or parquet", "the output format %q cannot be written", format)
}

// fixedColumns reports whether a format needs its columns before the first record.
func fixedColumns(format string) bool { return format != JSONL && format != JSON }

// delimiter returns what separates the fields of a format.
func delimiter(format string) rune {
	if format == TSV {
		return '\t'
	}
	return ','
}

// invalid returns the error of a command line or of an input's content.
func invalid(remedy, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf(format, args...), Remedy: remedy}
}
