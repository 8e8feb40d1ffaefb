// Package finalize writes what users read: completions.jsonl, errors.jsonl and,
// last, summary.json.
//
//	Finalize ─▶ one stream:  shard 0, 1, 2, … ─▶ both files ──────────▶ summary ─▶ Finalized
//	         └▶ segments:    FinalizeSegment × n ─▶ rows ─▶ join ────────┘
//	Finalize, while the run goes on ─▶ whole parts of its facts
//
// A run is finalized in these steps:
//
//  1. Finalize checks that the run is Finalizing and has no summary.
//  2. The files are written in shard order. A committed result is copied. A
//     sealed shard contributes the rows of its checkpoint. Every item without a
//     row gets an error line under its own id, which is read from the input.
//  3. With Options.Segments, the files of a large run are written in segments by
//     many calls (WriteSegment), and the call that finds none missing joins them.
//     No call takes long, however large the run is.
//  4. If the config asks for facts, the rest of them is written as Parquet files. The
//     whole ones among them were written while the run went on.
//  5. The summary is written last, and coordinate is told.
//
// The files are a pure function of immutable inputs: Done shards, the frozen
// frontier and the pinned input. Each item of the run appears exactly once (I1),
// in item order (I4). Writing them twice, or on two machines at once, gives the
// same bytes, and the objects are create-only. Follow may write behind the commit
// frontier of a run that is still running; users do not see the files before the
// end. The package holds at most a few shards in memory, and what a few copies
// are made of.
package finalize
