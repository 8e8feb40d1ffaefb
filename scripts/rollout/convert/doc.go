// Package convert turns files of other formats into files of prompts, and results into files for other tools.
//
//	IN ─▶ source ─▶ reader ─▶ records (JSON objects) ─▶ writer ─▶ temporary file ─▶ OUT
//	      unpack    JSON, CSV, Parquet                  JSONL, CSV, Parquet
//
// A record is the text of one JSON object: between the two sides nothing is decoded, so that numbers and escapes stay
// as they were written. Formats with a fixed set of columns, CSV and Parquet, are written in two passes: the first one
// finds the columns and their types (shape), the second one writes. A source that can be read only once is copied into
// a temporary file for that.
//
// Memory is bounded by the longest record, and for Parquet by a row group. OUT appears complete or not at all. The
// package knows nothing of prompts: it neither adds nor checks their fields.
package convert
