// Package facts writes the facts of a run, one row for each item, as Parquet.
//
//	Fact ─▶ Writer ─▶ pages (zstd) ─▶ row groups of 32 MiB ─▶ footer with the Position
//
// The bytes are a function of the facts, of their order and of the columns alone, so that
// a part that is written again after a crash is the same. A Writer holds one row group in
// memory. The package decides nothing about a run: package finalize says which items a
// part has.
package facts
