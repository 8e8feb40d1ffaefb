package config

import "cmp"

// Facts says whether the facts of a run, a row for each item, are written as Parquet files
// beside its output files, also while it goes on.
type Facts struct {
	Parquet bool `toml:"parquet" json:"parquet,omitempty"`
	// PartItems is the number of items after which a file ends; 0 means 65,536. One
	// ends before that where its prompts have 64 MiB.
	PartItems int `toml:"part_items" json:"part_items,omitempty"`
}

// Items of a file of facts: where the config does not say, and at most.
const (
	defaultPartItems = 65536
	maxPartItems     = 1 << 20
)

// ItemsOfPart returns the number of items after which a file of facts ends.
func (f Facts) ItemsOfPart() uint64 { return uint64(cmp.Or(f.PartItems, defaultPartItems)) }

func (f Facts) check(c *checker, at string) {
	c.integer(at+".part_items", &f.PartItems, 0, maxPartItems, "; 0 is the default")
}
