package record

import (
	"maps"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// Role says which model answers the items of a role, in which pool, and how. A
// shard has one role, which is its number in the shard table: role 0 answers the
// users' items, and the roles from 1 on are those in Manifest.Roles.
type Role struct {
	Name     string          `json:"name"` // Example: "judge"
	Pool     string          `json:"pool"`
	ModelURI string          `json:"model_uri"`
	ModelID  string          `json:"model_id"` // hex
	Sampling config.Sampling `json:"sampling"`
	Request  *config.Request `json:"request,omitempty"` // nil without settings
	// Graded says that answers of the role get the scores of the run's graders.
	Graded bool `json:"graded,omitempty"`
	// Output says that the role answers the users' items as role 0 does, by another model: its rows
	// are in the output files. The other roles do work for the run itself, such as judging.
	Output bool `json:"output,omitempty"`
}

// RoleAnswer is the name of role 0.
const RoleAnswer = "answer"

// MaxRoles bounds the roles of a run, the answer included: a run's state counts by
// role and must stay small.
const MaxRoles = 8

// Role returns a role of the run by its number. A number that the run does not
// have is Corrupt: it comes from the run's own plan.
func (m Manifest) Role(n uint32) (Role, error) {
	switch {
	case n == 0:
		return Role{Name: RoleAnswer, Pool: m.Pool, ModelURI: m.ModelURI, ModelID: m.ModelID,
			Sampling: m.Config.Sampling, Request: m.Config.Request}, nil
	case int(n) <= len(m.Roles):
		return m.Roles[n-1], nil
	}
	return Role{}, fault.New(fault.Corrupt, "run %s has no role %d: it has %d", m.Run, n, 1+len(m.Roles))
}

// RoleNumber returns the number of the run's role of that name. A name that the run
// does not have is Invalid.
func (m Manifest) RoleNumber(name string) (uint32, error) {
	if name == RoleAnswer {
		return 0, nil
	}
	i := slices.IndexFunc(m.Roles, func(r Role) bool { return r.Name == name })
	if i < 0 {
		return 0, fault.New(fault.Invalid, "run %s has no role %q", m.Run, name)
	}
	return uint32(i) + 1, nil
}

// HasOutput reports whether the rows of a role's items are in the output files.
func (m Manifest) HasOutput(role uint32) bool {
	return role == 0 || int(role) <= len(m.Roles) && m.Roles[role-1].Output
}

// OutputRoles returns the numbers of the roles beyond role 0 whose rows are in the output files.
func (m Manifest) OutputRoles() (numbers []int) {
	for i, r := range m.Roles {
		if r.Output {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// OutputItems returns how many of the items that are planned by role have their rows in the output
// files.
func (m Manifest) OutputItems(planned []run.RolePlan) (n uint64) {
	for role, p := range planned {
		if m.HasOutput(uint32(role)) {
			n += p.Items
		}
	}
	return n
}

// RoleOfModel returns the number of the role with output whose model has that URI; "" is the model of
// role 0. A model that the run does not have is Corrupt: it comes from the run's own config.
func (m Manifest) RoleOfModel(uri string) (uint32, error) {
	if uri == "" || uri == m.ModelURI {
		return 0, nil
	}
	i := slices.IndexFunc(m.Roles, func(r Role) bool { return r.Output && r.ModelURI == uri })
	if i < 0 {
		return 0, fault.New(fault.Corrupt, "run %s has no role of the model %s", m.Run, uri)
	}
	return uint32(i) + 1, nil
}

// InRole returns the manifest as it holds for items of the role: with the pool, the
// model, the sampling parameters and the request settings of the role in the places of
// the answer's. Items of roles without output, which the run itself asks for, are plain lines,
// and their failures do not end the run. Items are not graded unless their role is.
func (m Manifest) InRole(n uint32) (Manifest, error) {
	r, err := m.Role(n)
	if err != nil || n == 0 {
		return m, err
	}
	m.Pool, m.ModelURI, m.ModelID = r.Pool, r.ModelURI, r.ModelID
	m.Config.Sampling, m.Config.Request = r.Sampling, r.Request
	if !r.Graded {
		m.Config.Grades = nil
	}
	if !r.Output {
		m.Dialect, m.Config.Limits.FailFast = string(dialect.Plain), false
	}
	return m, nil
}

// Pools returns the pools of all roles, each once, the answer's first.
func (m Manifest) Pools() []string {
	out := []string{m.Pool}
	for _, r := range m.Roles {
		if !slices.Contains(out, r.Pool) {
			out = append(out, r.Pool)
		}
	}
	return out
}

// OpenShards returns how many planned shards are not done in the state, by pool. A
// pool without any is left out.
func (m Manifest) OpenShards(s run.State) map[string]int {
	out := map[string]int{}
	if len(s.Roles) == 0 {
		out[m.Pool] = s.Shards - s.Done.Set.Len()
	}
	for n, of := range s.Roles {
		if r, err := m.Role(uint32(n)); err == nil {
			out[r.Pool] += of.Shards - of.Done
		}
	}
	for pool, n := range out {
		if n <= 0 {
			delete(out, pool)
		}
	}
	return out
}

// Demands returns what machines each pool with open shards needs for the run, as if no worker
// held one of them. What is left of a budget in dollars is shared equally by the pools. held is
// what the shards in flight have spent of it so far, in millionths of a dollar.
func (m Manifest) Demands(s run.State, held int64) map[string]scaling.Demand {
	out := map[string]scaling.Demand{}
	open := m.OpenShards(s)
	for pool, n := range open {
		d := scaling.Demand{OpenShards: n, UnclaimedShards: n}
		if limit := cost.LimitOf(0, m.Config.Limits.Dollars).MicroUSD; limit > 0 {
			d.LeftMicroUSD = max(1, (limit-s.Spent().MicroUSD-held)/int64(len(open)))
		}
		out[pool] = d
	}
	return out
}

// NeededPools returns the pools that have planned shards to answer; the pool of the
// answers if there are no such shards.
func (m Manifest) NeededPools(s run.State) (out []string) {
	open := m.OpenShards(s)
	for _, pool := range m.Pools() {
		if open[pool] > 0 {
			out = append(out, pool)
		}
	}
	if len(out) == 0 {
		return []string{m.Pool}
	}
	return out
}

// Counted returns the counts of a role in which the shards of p ended as c says.
func (r Role) Counted(p run.RolePlan, c shard.Counts) RoleCounts {
	by := map[string]int{}
	maps.Copy(by, c.ByClass)
	return RoleCounts{Name: r.Name, Pool: r.Pool, Model: r.ModelURI, Output: r.Output, Shards: p.Shards, Items: p.Items,
		Completed: uint64(max(0, c.OK)), Failed: uint64(max(0, c.Failed)), FailedByClass: by,
		PromptTokens: c.PromptTokens, CompletionTokens: c.CompletionTokens, WastedTokens: c.WastedTokens,
		WastedEstimated: c.WastedEstimated}
}

// AddRange counts a merged range in the plan, whose items are of that role unless the range says
// which roles they have.
func (p *Plan) AddRange(role uint32, r RangeResult) {
	added := r.Roles
	if len(added) == 0 && (role > 0 || len(p.Roles) > 0) {
		added = make([]run.RolePlan, role+1)
		added[role] = run.RolePlan{Shards: r.Shards, Items: r.Items}
	}
	if len(added) > 0 {
		p.Roles = slices.Clone(p.Roles)
		if len(p.Roles) == 0 { // all ranges before are of role 0
			p.Roles = []run.RolePlan{{Shards: p.Shards, Items: p.Items}}
		}
		p.Roles = append(p.Roles, make([]run.RolePlan, max(0, len(added)-len(p.Roles)))...)
		for n, of := range added {
			p.Roles[n].Shards += of.Shards
			p.Roles[n].Items += of.Items
		}
	}
	p.Merged, p.Shards = p.Merged+1, p.Shards+r.Shards
	p.Items, p.Lines = p.Items+r.Items, p.Lines+r.Lines
}
