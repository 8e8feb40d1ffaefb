// Package sample asks a part of a prompts file first, and tells from its answers what the whole file takes.
//
//	prompts file ─▶ Draw ─▶ a small file, uploaded as a run of its own ─▶ its rows ─▶ Measure ─▶ Estimate
//	                  └─▶ number and sizes of all items ───────────────────────────────┘
//
// Draw reads the file once and checks every line as a dry run does. In memory it has the places of the sample's lines,
// and of all lines the hashes by which it finds equal ids and requests. The method of the estimate is that of package
// estimate. The package starts no run.
package sample
