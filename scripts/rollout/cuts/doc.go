// Package cuts tells how the input of a run is cut into ranges and shards: of a file before it is a run, by the code
// that planning uses, and of a run from its plan. It writes nothing.
package cuts
