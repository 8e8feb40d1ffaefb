// Package fakerun is the part of Cloud Run's API (version 2) that starts tasks of jobs, in
// this process: jobs.run with a number of tasks, and executions, listed page by page and
// cancelled. What it does differently from Cloud Run stands in DIFFERENCES.md.
//
//	jobs.run ─▶ execution: its tasks wait ─▶ Capacity allows ─▶ Launch ─▶ end with their process
//	                            │                                  │
//	                            └── :cancel ───────────────────────┴─▶ SIGTERM, 10 s later SIGKILL
//
// Without Launch, tests start and end the tasks themselves.
package fakerun
