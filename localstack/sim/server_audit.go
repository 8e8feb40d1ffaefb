package sim

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// serverAudit is what a run has asked of its inference servers, and what it has shown of
// the answers. The mutex of httpServers guards it.
type serverAudit struct {
	asked    map[string]map[string]int // requests of items: by process, by body
	unproven map[string]int            // those since the last answer, or since the run was resumed, by process
	proven   bool                      // one was answered since then
	roles    map[uint32]roleAnswers    // of the run under way
	role     uint32                    // of the shard that was claimed last
	pauses   int                       // of the run, for its servers
	mended   time.Time                 // when the user has mended the servers last
}

// roleAnswers are the answers of a role.
type roleAnswers struct {
	last   time.Time // when a request was answered last
	shards int       // whose documents have answers
}

func newServerAudit() serverAudit {
	return serverAudit{asked: map[string]map[string]int{}, unproven: map[string]int{}, roles: map[uint32]roleAnswers{}}
}

// Bounds of I8.
const (
	mostUnproven = 20  // requests of a worker for a run whose every request is refused
	mostAsked    = 120 // requests of a worker for one prompt: one that is throttled for ever is tried often
	mostAttempts = 40  // of a shard
	mostPauses   = 4   // of a run, for its servers
)

const (
	// leastSilence is the least time without any answer before a run pauses whose
	// documents have answers.
	leastSilence = 50 * time.Second
	// pauseDelay bounds the time from a fault to the pause that it causes.
	pauseDelay = 20 * time.Second
)

// ask counts a request of an item.
func (h *httpServers) ask(p *process, body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked[p.name] == nil {
		h.asked[p.name] = map[string]int{}
	}
	h.asked[p.name][body]++
	h.unproven[p.name]++
}

// answer notes that a request of an item is answered.
func (h *httpServers) answer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proven = true
	r := h.roles[h.role]
	r.last = time.Now()
	h.roles[h.role] = r
	clear(h.unproven)
}

// resume notes that the user resumes the run.
func (h *httpServers) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proven = false
	clear(h.unproven)
}

// follow notes that another run begins.
func (h *httpServers) follow() {
	if h == nil {
		return
	}
	h.resume()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pauses = 0
	for role, r := range h.roles {
		h.roles[role] = roleAnswers{last: r.last}
	}
}

// document checks a document that is written: was is the earlier version of a shard's.
func (h *httpServers) document(key string, was shard.Doc, value []byte) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case strings.HasPrefix(key, "shard/"):
		var d shard.Doc
		if json.Unmarshal(value, &d) != nil {
			return
		}
		if d.State == shard.Running && d.Attempt != was.Attempt {
			h.role = h.roleOf(d)
		}
		if d.Counts.HasAnswers() && !was.Counts.HasAnswers() {
			role := h.roleOf(d)
			r := h.roles[role]
			r.shards++
			h.roles[role] = r
		}
	case strings.HasPrefix(key, record.ControlKey("")):
		var c record.Control
		if json.Unmarshal(value, &c) == nil && c.Desired == record.DesiredPause && c.Refused != "" {
			h.paused(c)
		}
	}
}

// roleOf returns the role of a shard. Runs with inference servers have one role, unless
// they are rollouts: these have one at a time.
func (h *httpServers) roleOf(d shard.Doc) uint32 {
	if h.tickets == nil {
		return 0
	}
	ctx := context.WithoutCancel(h.t.Context())
	m, err := host.LoadManifest(ctx, h.docs, d.Run)
	var role uint32
	if err == nil {
		role, err = input.NewIndex(h.bucket, h.docs).RoleOf(ctx, m, d.Shard)
	}
	if err != nil {
		h.t.Errorf("seed %d: the role of shard %d: %v", h.seed, d.Shard, err)
	}
	return role
}

// paused checks that a run pauses only where a user must mend something, or where none of
// its requests was ever answered. The caller holds h.mu.
func (h *httpServers) paused(c record.Control) {
	h.tracef("the run pauses: %s (%s)", c.Reason, c.Refused)
	refusedOnly := len(h.faults.episodes) == 1 && len(h.faults.prompts) == 0
	for name, n := range h.unproven {
		if refusedOnly && !h.proven && n > mostUnproven {
			h.audit.breakf("I8: %s has spent %d requests on a run whose every request is refused", name, n)
		}
	}
	h.pauses++
	if h.pauses > mostPauses {
		h.audit.breakf("I8: the run pauses for the %d. time", h.pauses)
	}
	role := h.roles[h.role]
	if role.shards == 0 || h.pauses > 1 { // a worker may take answers for those before a resume
		return
	}
	if time.Since(h.mended) < pauseDelay { // a worker may not have found out yet
		return
	}
	if since := time.Since(role.last); since < leastSilence {
		h.audit.breakf("the run pauses for %s %s after its last answer", c.Refused, since)
	}
	now := time.Since(h.startedAt)
	for back := time.Duration(0); back <= pauseDelay; back += 100 * time.Millisecond {
		if h.faults.mayPause(len(h.servers), now-back) {
			return
		}
	}
	h.audit.breakf("the run pauses for %s, and no setting is at fault", c.Refused)
}

// checkBounds checks that the requests for each prompt, and the attempts of each shard, are
// bounded (I8).
func (h *httpServers) checkBounds() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, asked := range h.asked {
		for body, n := range asked {
			if n > mostAsked {
				h.audit.breakf("I8: %s asked %d times: %s", name, n, body)
			}
		}
	}
	for key, d := range h.audit.shards {
		if d.Attempt > mostAttempts {
			h.audit.breakf("I8: %s has %d attempts", key, d.Attempt)
		}
	}
}

// explain reports whether the server's words explain the error row of an item whose line has
// the text.
func (h *httpServers) explain(text string, class fault.Class, words string) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults.explain(text, class, words)
}
