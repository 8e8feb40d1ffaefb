// Package terminal draws on terminals: bars, tables and sentences that fit a width, colours, and a display that is
// redrawn below what is written meanwhile.
//
// Text comes in from callers, who sanitize what is not theirs, and leaves as lines. The package knows nothing about
// runs, never asks for the time, and writes only what it was given to draw.
package terminal
