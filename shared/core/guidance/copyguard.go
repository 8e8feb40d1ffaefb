package guidance

import "golang.org/x/text/unicode/norm"

// CopyGuard finds out whether a plan copies a ticket: whether a run of RunWords words
// in one of its texts stands in a ticket too, and neither in the scaffold nor in an
// entry of the guidance that the plan was made for. Letters are compared without
// case, and punctuation does not count. It is safe for concurrent use.
//
//	texts of the plan ──▶ their runs − runs of scaffold and entries ──▶ set
//	                                                                     ▲ is one of its runs in it?
//	                                      tickets, one after the other ──┘
type CopyGuard struct{ forbidden map[string]struct{} }

// NewCopyGuard returns the guard for a plan that changes g.
func NewCopyGuard(p Plan, g Guidance) *CopyGuard {
	c := &CopyGuard{forbidden: make(map[string]struct{})}
	for _, op := range p.Operations {
		r := newRuns(op.Text)
		for run, ok := r.next(); ok; run, ok = r.next() {
			c.forbidden[string(run)] = struct{}{}
		}
	}
	for _, known := range append(g.texts(), g.Scaffold) {
		r := newRuns(known)
		for run, ok := r.next(); ok; run, ok = r.next() {
			delete(c.forbidden, string(run))
		}
	}
	return c
}

// Empty reports whether no ticket can be copied: a plan that only drops entries, for
// example, has no text. Then there is no need to read the tickets.
func (c *CopyGuard) Empty() bool { return len(c.forbidden) == 0 }

// Ticket returns the first run of the ticket's content that the plan copies, as
// words in lower case, and whether there is one. It takes time in proportion to the
// content and no memory but for a copy of content that is not in normal form C.
func (c *CopyGuard) Ticket(content string) (run string, copied bool) {
	if c.Empty() {
		return "", false
	}
	r := newRuns(content)
	for run, ok := r.next(); ok; run, ok = r.next() {
		if _, copied := c.forbidden[string(run)]; copied {
			return string(run), true
		}
	}
	return "", false
}

// Refusal returns the *Refused of a plan that copies the run from the ticket.
func (c *CopyGuard) Refusal(ticket, run string) error {
	return refuse(CopiesTicket, "the words %.200q stand in ticket %.64q: guidance must state a rule, not repeat a ticket",
		run, ticket)
}

// runs yields the runs of a text: for each word, the shortest run that ends with it.
// A copied passage has the same runs as its original wherever it stands.
//
// The words of the window lie one after the other in a buffer of fixed size, so that
// a run is a slice of it and nothing is allocated.
type runs struct {
	rest string // of the text, after the window
	// buf holds words, each followed by a space, up to end.
	buf [4096]byte
	end int
	// window are the last words: at most 2×RunWords of them, and one more for a moment.
	window [2*RunWords + 1]word
	n      int // words in the window
	weight int // of the words in the window
}

// word is a word of the window: where it begins in the buffer, and its weight.
type word struct{ begin, weight int }

func newRuns(s string) runs { return runs{rest: norm.NFC.String(s)} }

// next returns the next run: folded words with a space between, in a slice that is
// valid until the next call. It returns false at the end of the text.
func (r *runs) next() (run []byte, ok bool) {
	for {
		if r.end > len(r.buf)-maxWord-1 {
			r.compact()
		}
		begin := r.end
		dst, rest, weight := nextWord(r.buf[:begin], r.rest)
		if weight == 0 {
			return nil, false
		}
		r.rest = rest
		r.end = len(append(dst, ' '))
		r.window[r.n] = word{begin, weight}
		r.n++
		r.weight += weight
		for r.weight-r.window[0].weight >= runWeight {
			r.weight -= r.window[0].weight
			r.n = copy(r.window[:], r.window[1:r.n])
		}
		if r.weight >= runWeight {
			return r.buf[r.window[0].begin : r.end-1], true
		}
	}
}

// compact moves the words of the window to the buffer's front.
func (r *runs) compact() {
	base := r.end
	if r.n > 0 {
		base = r.window[0].begin
	}
	r.end = copy(r.buf[:], r.buf[base:r.end])
	for i := range r.window[:r.n] {
		r.window[i].begin -= base
	}
}
