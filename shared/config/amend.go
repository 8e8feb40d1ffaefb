package config

import "slices"

// ParseVariants parses a file with tables [[variant]], for runs of trials that are amended.
// Messages name the source by file. Errors are Invalid and hold Problems.
func ParseVariants(file string, src []byte) ([]Variant, error) {
	var f struct {
		SchemaVersion int       `toml:"schema_version"`
		Variants      []Variant `toml:"variant"`
	}
	err := parse(file, src, versionOptional, &f, func(c *checker) {
		if len(f.Variants) == 0 {
			c.add("variant", "missing: add a table [[variant]] with a name")
		}
	})
	return f.Variants, err
}

// Amend returns the config of a run of trials with further variants and, unless that is 0, another
// number of replications. Errors are Invalid and hold Problems, which name the variants by their
// numbers in the whole run.
func (r Run) Amend(replications int, variants []Variant) (Run, error) {
	d := r.DesignOf()
	c := newChecker("the amended run", nil)
	if replications != 0 && replications <= d.Replications {
		c.add("design.replications", "must be more than the %d that the run has, is %d", d.Replications, replications)
		return r, c.err()
	}
	if replications > 0 {
		d.Replications = replications
	}
	r.Design = &d
	r.Variants = slices.Concat(r.Variants, variants)
	r.check(c, "")
	return r, c.err()
}
