package iam

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Grant is a role that a member has on a resource.
type Grant struct {
	Address   string // in Terraform. Example: google_pubsub_topic_iam_member.publish["plan-plan"]
	Member    string // Example: serviceAccount:rollout-plan@acme-ml.iam.gserviceaccount.com
	Role      string // Example: roles/pubsub.publisher, projects/acme-ml/roles/rollout_call
	Resource  string // its full name, and the scope of the grant. Example: projects/acme-ml/topics/rollout-plan
	Condition string // in CEL; "" for none
}

// Request is what a member wants to do.
type Request struct{ Member, Permission, Resource string }

// Denial is a request that no grant allows. It is an error.
type Denial struct{ Request }

// Error says who lacks which permission on what.
func (d Denial) Error() string {
	return fmt.Sprintf("%s does not have %s on %s", d.Member, d.Permission, d.Resource)
}

// Policy are the grants of an installation. It is safe for concurrent use.
type Policy struct {
	rules []rule

	mu        sync.Mutex
	withdrawn string          // the address of the grant that counts as absent
	used      map[string]bool // addresses of grants without which a request would have been denied
	denied    []Denial
}

// rule is a grant with its permissions.
type rule struct {
	Grant
	permissions []string
	condition   condition
}

// New returns the policy of the grants. custom are the permissions of custom roles, by
// their full names. A role or condition that is not known here is an error.
func New(grants []Grant, custom map[string][]string) (*Policy, error) {
	p := &Policy{used: map[string]bool{}}
	for _, g := range grants {
		r := rule{Grant: g, permissions: custom[g.Role]}
		if r.permissions == nil {
			r.permissions = predefined[g.Role]
		}
		if r.permissions == nil {
			return nil, fmt.Errorf("%s: the permissions of %s are not known", g.Address, g.Role)
		}
		var err error
		if r.condition, err = parseCondition(g.Condition); err != nil {
			return nil, fmt.Errorf("%s: %w", g.Address, err)
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}

// Check returns nil if a grant allows the request. Otherwise it returns the Denial, and
// notes it.
func (p *Policy) Check(r Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	allowing := p.allowing(r)
	switch len(allowing) {
	case 0:
		d := Denial{r}
		p.denied = append(p.denied, d)
		return d
	case 1:
		p.used[allowing[0]] = true
	}
	return nil
}

// Allows reports whether a grant allows the request, and notes nothing.
func (p *Policy) Allows(r Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.allowing(r)) > 0
}

// allowing returns the addresses of the grants that allow a request. The caller holds mu.
func (p *Policy) allowing(r Request) (addresses []string) {
	for _, at := range p.rules {
		if at.Address != p.withdrawn && at.allows(r) {
			addresses = append(addresses, at.Address)
		}
	}
	return addresses
}

func (at rule) allows(r Request) bool {
	return at.Member == r.Member && slices.Contains(at.permissions, r.Permission) && within(r.Resource, at.Resource) &&
		at.condition.holds(r.Resource)
}

// within reports whether a resource is the scope of a grant or lies in it. Buckets, whose
// names have no project, lie in every project: an installation has one.
func within(resource, scope string) bool {
	project := strings.HasPrefix(scope, "projects/") && strings.Count(scope, "/") == 1
	return resource == scope || strings.HasPrefix(resource, scope+"/") ||
		project && strings.HasPrefix(resource, "projects/_/buckets/")
}

// Withdraw makes the grant of the address count as absent, and no other; "" restores all.
// It forgets the denials so far.
func (p *Policy) Withdraw(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withdrawn, p.denied = address, nil
}

// Denied returns the requests that were denied since Withdraw was last called, in their
// order.
func (p *Policy) Denied() []Denial {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.denied)
}

// Missing returns the addresses of the grants that would allow a denied request, among
// them the one that was withdrawn.
func (p *Policy) Missing(d Denial) (addresses []string) {
	for _, at := range p.rules {
		if at.allows(d.Request) {
			addresses = append(addresses, at.Address)
		}
	}
	return addresses
}

// Needed returns the addresses of the grants that alone allowed a request, sorted, and
// forgets them.
func (p *Policy) Needed() (addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address := range p.used {
		addresses = append(addresses, address)
	}
	clear(p.used)
	slices.Sort(addresses)
	return addresses
}

// Grants returns all grants.
func (p *Policy) Grants() (grants []Grant) {
	for _, at := range p.rules {
		grants = append(grants, at.Grant)
	}
	return grants
}
