package online

import "time"

// SetGrace sets what a worker may take beyond what it is given.
func (d *Door) SetGrace(g time.Duration) { d.grace = g }
