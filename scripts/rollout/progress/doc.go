// Package progress shows people how a run is coming along: a bar on a
// terminal, a plain line every few seconds elsewhere, and a closing summary.
//
// It follows a run by asking for its status; it never steers one, and what it
// shows decides nothing. Text that comes from inputs, models or files is made
// harmless before it is shown.
package progress
