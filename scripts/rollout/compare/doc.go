// Package compare compares the answers of two ended runs, item by item.
//
// Each run is read once, as a stream in item order: an error row names its item, and the
// output rows between are the answered ones, so that a failed item never shifts those after
// it. Items are matched by their index if both runs have the same plan, and otherwise by the
// lines' own ids. Ids that come in the same order are matched as they come. From the first
// one on that differs, the rest of both runs is divided by the hash of the ids into temporary
// files, of which one at a time is in memory.
//
// The package reads runs and changes nothing.
package compare
