package trials

import (
	"fmt"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/design"
)

// ReadTrial reads which trial an item is from its line. A line that is not that of a trial is
// Corrupt.
func ReadTrial(line []byte) (Trial, error) { return readTrial(line) }

// TrialOf is ReadTrial for an item of a run with that config. Its slot is that of the config: the
// line of a trial that was asked before the run was amended has that of a smaller design.
func TrialOf(c config.Run, line []byte) (Trial, error) {
	t, err := readTrial(line)
	if err != nil {
		return t, err
	}
	p := design.Place{Replication: t.Replication}
	p.Variant = slices.IndexFunc(c.Variants, func(v config.Variant) bool { return v.Name == t.Variant })
	if _, err := fmt.Sscanf(t.ID, "t%d.", &p.Task); err == nil && p.Variant >= 0 {
		t.Slot = uint64(DesignOf(c, p.Task+1).Slot(p))
	}
	return t, nil
}
