// Package report writes the report of an ended rollout: one HTML page that needs no script and no network.
//
//	selections.jsonl ─┬▶ sums by step and batch, votes, flows between steps ─────────────▶ plots, tables ─┐
//	                  └▶ a small state of each ticket ─▶ which flipped, which are hardest ─┐               │
//	trajectories.jsonl ─▶ sums of tokens and scores, answers of those tickets ─────────────┤               ├▶ page
//	failures, manual_review, metrics_epoch, reflection.jsonl ─▶ counts and the first rows ─┤               │
//	completions.jsonl ─▶ what was asked about the tickets that the page names ─────────────┴▶ tables ──────┘
//
// Each file is read as a stream, one row at a time. What is kept of it is bounded: a fixed state of each ticket (a run
// has at most config.MaxTickets), sums of at most maxBins steps and batches, and lists of at most maxListed rows with
// texts that are cut. The page has at most 5 MB, whatever the run has: each list has a budget of bytes, and says how
// many rows it left out.
//
// Tickets, answers and reflections are hostile. They are text to html/template wherever they stand; the page's policy
// allows no script, no request and no frame; and characters that control the direction of text are replaced in all that
// is written.
//
// The package only reads, and the same files give the same page.
package report
