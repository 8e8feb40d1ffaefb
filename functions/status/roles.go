package status

import (
	"slices"

	"rollout/shared/record"
)

// Role is the progress of one role of a run of several roles.
type Role struct {
	record.RoleCounts
	Done int `json:"shards_done"`
}

// Committed is how many items of the role have a committed row.
func (r Role) Committed() uint64 { return r.Completed + r.Failed }

// setRoles sets the progress by role of a run of several roles. Such a run asks for
// items of roles without output only when the answers before them are committed. Uncommitted rows
// beyond the users' open items therefore belong to such roles, and are left out.
func (s *Status) setRoles(p Progress) {
	for n, of := range p.State.Roles {
		r, err := p.Manifest.Role(uint32(n))
		if err != nil {
			continue // of another version, which knows more roles
		}
		s.Roles = append(s.Roles, Role{r.Counted(of.RolePlan, of.Counts), of.Done})
	}
	if len(s.Roles) > 0 {
		s.Items.Total = 0
		for n, r := range s.Roles {
			if n == 0 || r.Output {
				s.Items.Total += r.Items
			}
		}
		s.Items.Uncommitted = min(s.Items.Uncommitted, s.Items.Total-min(s.Items.Total, s.Items.Committed()))
	}
}

// Pools returns the pools of all roles of the run, each once, the answer's first.
func (s Status) Pools() []string {
	out := []string{s.Pool}
	for _, r := range s.Roles {
		if !slices.Contains(out, r.Pool) {
			out = append(out, r.Pool)
		}
	}
	return out
}
