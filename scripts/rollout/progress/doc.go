// Package progress displays the progress of a run: a bar on a terminal, a plain line every few seconds elsewhere, and a
// summary at the end.
//
// A Follower polls the run's status and passes it to a View; the Format functions are used by other screens, too. The
// package never changes a run. It sanitizes text from inputs, models and files before it displays it, so that such text
// cannot control the terminal.
package progress
