package fakecompute

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options configure a Server. The zero value has quota and machines without end.
type Options struct {
	Project, Region string
	Now             func() time.Time // of errors; default: time.Now
	// Booted and Ended are called when an instance begins to run, and when it is ended.
	// Deleted is called in the place of Ended when its group deletes it: it has some time to
	// shut down. They may be nil. They must not call the server.
	Booted, Ended, Deleted func(Instance)
	// Before is called with each request before it takes effect. It may be nil, and may
	// block.
	Before func(*http.Request)
	// After is called with each request that took effect, before its answer is sent. It may
	// be nil, and may block.
	After func(*http.Request)
}

// Instance is a machine.
type Instance struct {
	ID    string // numeric, and new for each machine
	Name  string // may come back
	Zone  string
	Group string
}

// Server is Compute Engine with its groups. It is safe for concurrent use.
type Server struct {
	options Options

	mu       sync.Mutex
	groups   map[string]*group
	quota    int             // of all machines; below 0: unlimited
	stock    map[string]int  // machines that a group may still get; absent: unlimited
	broken   map[string]bool // groups whose template names an absent image
	refused  bool            // a policy forbids machines
	ids, ops int
	resizes  int
	lowered  []string // working machines that a lower size has ended
	lost     int      // replies to lose
}

// group is a managed instance group.
type group struct {
	name    string
	zones   []string
	size    int
	made    int // names
	members []*member
	errors  []failure
}

// member is an instance of a group, or the attempt to have one.
type member struct {
	Instance
	status string // "" until it exists
	action string
}

// failure is an error of a group.
type failure struct {
	at                    time.Time
	code, message, member string
}

// maxFailures is how many errors a group remembers.
const maxFailures = 50

// New returns a server without groups. It is a handler.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{options: o, groups: map[string]*group{}, quota: -1, stock: map[string]int{}, broken: map[string]bool{},
		ids: 4520031799277581000}
}

// Start serves requests on a port of the loopback interface until end is called.
func (s *Server) Start() (address string, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}

// MakeGroup makes an empty group in the zones.
func (s *Server) MakeGroup(name string, zones ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[name] = &group{name: name, zones: zones}
}

// DeleteGroup deletes a group with its machines, as a destroyed deployment does.
func (s *Server) DeleteGroup(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.groups[name].members {
		s.end(m)
	}
	delete(s.groups, name)
}

// SetQuota sets how many machines the project may have; below 0 as many as it likes.
func (s *Server) SetQuota(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quota = n
}

// SetStock sets how many further machines a group can get; below 0 as many as it likes.
func (s *Server) SetStock(group string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stock[group] = n; n < 0 {
		delete(s.stock, group)
	}
}

// SetImage says whether the image of a group's template exists.
func (s *Server) SetImage(group string, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[group] = !exists
}

// Refuse says whether a policy of the organisation forbids machines.
func (s *Server) Refuse(refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = refused
}

// LoseReplies loses the replies of the next requests that change something.
func (s *Server) LoseReplies(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = n
}

// Machines returns the machines that exist, the oldest first.
func (s *Server) Machines() (all []Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for _, m := range g.members {
			if m.status == running {
				all = append(all, m.Instance)
			}
		}
	}
	slices.SortFunc(all, func(a, b Instance) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Size returns the size that a group shall have.
func (s *Server) Size(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[name].size
}

// SetSize sets the size that a group shall have, as its owner may.
func (s *Server) SetSize(name string, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resize(s.groups[name], size)
}

// Resizes returns how many times groups were resized.
func (s *Server) Resizes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resizes
}

// Lowered returns the running machines that were ended because a size was lowered.
func (s *Server) Lowered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lowered)
}

const running = "RUNNING"

// Step lets the groups work: machines that are being deleted end, and missing ones are
// created, or fail to be.
func (s *Server) Step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		g.members = slices.DeleteFunc(g.members, func(m *member) bool {
			if m.action == "DELETING" {
				s.delete(m)
			}
			return m.action == "DELETING"
		})
		for _, m := range g.members {
			if m.status != running {
				s.create(g, m)
			}
		}
	}
}

// create tries to create a machine for a member of a group.
func (s *Server) create(g *group, m *member) {
	code, message := s.obstacle(g, m)
	if code != "" {
		g.errors = append(g.errors, failure{s.options.Now(), code, message, s.url(m)})
		g.errors = g.errors[max(0, len(g.errors)-maxFailures):]
		// A regional group of shape ANY tries another zone next.
		m.Zone = g.zones[(slices.Index(g.zones, m.Zone)+1)%len(g.zones)]
		return
	}
	if n, limited := s.stock[g.name]; limited {
		s.stock[g.name] = n - 1
	}
	s.ids++
	m.ID, m.status, m.action = strconv.Itoa(s.ids), running, "NONE"
	if s.options.Booted != nil {
		s.options.Booted(m.Instance)
	}
}

// obstacle returns why a machine can't be created, or "". The messages are Google's.
func (s *Server) obstacle(g *group, m *member) (code, message string) {
	count := 0
	for _, g := range s.groups {
		for _, m := range g.members {
			if m.status == running {
				count++
			}
		}
	}
	stock, limited := s.stock[g.name]
	switch {
	case s.broken[g.name]:
		return "RESOURCE_NOT_FOUND", "The resource 'projects/deeplearning-platform-release/global/images/family/absent' " +
			"was not found"
	case s.refused:
		return "CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated for project " +
			s.options.Project + "."
	case s.quota >= 0 && count >= s.quota:
		return "QUOTA_EXCEEDED", fmt.Sprintf("Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: %d.0 globally.", s.quota)
	case limited && stock <= 0:
		return "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone 'projects/" + s.options.Project + "/zones/" + m.Zone +
			"' does not have enough resources available to fulfill the request.  Try a different zone, or try again later."
	}
	return "", ""
}

// delete ends a machine with its group's consent.
func (s *Server) delete(m *member) {
	if s.options.Deleted == nil {
		s.end(m)
		return
	}
	if m.status == running {
		s.options.Deleted(m.Instance)
	}
	m.status = ""
}

// end ends a machine, if it exists.
func (s *Server) end(m *member) {
	if m.status == running && s.options.Ended != nil {
		s.options.Ended(m.Instance)
	}
	m.status = ""
}

// Preempt takes a machine back. Its group creates another one of the same name at the
// next step. It reports whether the machine existed.
func (s *Server) Preempt(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for _, m := range g.members {
			if m.ID == id && m.status == running {
				s.end(m)
				m.ID, m.action = "", "RECREATING"
				return true
			}
		}
	}
	return false
}

// url returns the address of a member.
func (s *Server) url(m *member) string {
	return "https://www.googleapis.com/compute/v1/projects/" + s.options.Project + "/zones/" + m.Zone + "/instances/" +
		m.Name
}
