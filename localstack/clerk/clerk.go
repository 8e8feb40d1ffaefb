// Package clerk is a scripted model for rollouts: a clerk of a refunds desk, who knows
// nothing but what the guidance says, and who can say what it lacks.
//
// Tickets are sentences about an order that is sent back. Five rules decide them. If the
// guidance in a prompt states the rule that decides a ticket, the clerk is right with the
// probability Known, otherwise with Guessed. What the clerk draws depends on the ticket and
// on the request's seed alone, so that two guidances are compared on the same draws.
//
// Other tickets are about bookings that are cancelled: two rules decide them, and a clerk
// who knows one of the rules alone applies it to all. See cancellations.go.
//
// To the prompts of reflection, the clerk answers as a good model would: the rule that a
// ticket needs, operations that add the rules that are missing, and a plan of them.
//
// The package does no I/O. Functions are safe for concurrent use.
package clerk

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lukechampine.com/blake3"
)

// The probabilities of a right answer.
const (
	Known   = 0.97
	Guessed = 0.5
)

// The verdicts.
const (
	Refund = "refund"
	Refuse = "refuse"
)

// rule decides the tickets that it applies to, unless an earlier one does.
type rule struct {
	text    string // as an entry of guidance
	applies func(facts) bool
	verdict string
}

// facts are what a ticket says.
type facts struct {
	item         string
	days         int
	broken, used bool
	digital      bool
}

// rules are in the order of their precedence.
var rules = []rule{
	{"Digital goods: refuse, whatever else holds.", func(f facts) bool { return f.digital }, Refuse},
	{"Damage on arrival: refund up to thirty days later.", func(f facts) bool { return f.broken && f.days <= 30 }, Refund},
	{"Damage on arrival: refuse beyond thirty days.", func(f facts) bool { return f.broken }, Refuse},
	{"Untouched goods: refund up to fourteen days later.", func(f facts) bool { return !f.used && f.days <= 14 }, Refund},
	{"Other goods without damage: refuse.", func(facts) bool { return true }, Refuse},
}

// Rules returns the texts of the rules, as entries of guidance.
func Rules() (texts []string) {
	for _, r := range rules {
		texts = append(texts, r.text)
	}
	return texts
}

var described = regexp.MustCompile(
	`^A customer returned a (physical|downloaded) (\w+) on day (\d+) \((broken|fine), (new|used)\)$`)

// read reads a ticket.
func read(ticket string) (f facts, ok bool) {
	m := described.FindStringSubmatch(strings.TrimSpace(ticket))
	if m == nil {
		return f, false
	}
	days, err := strconv.Atoi(m[3])
	return facts{m[2], days, m[4] == "broken", m[5] == "used", m[1] == "downloaded"}, err == nil
}

// deciding returns the rule that decides a ticket.
func deciding(f facts) rule {
	for _, r := range rules {
		if r.applies(f) {
			return r
		}
	}
	return rule{}
}

// request is what the clerk reads of a request.
type request struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	Seed json.Number `json:"seed"`
}

// Answer returns the clerk's answer to the body of a chat request, and false for a request
// that the clerk does not answer.
func Answer(body []byte) (string, bool) {
	var r request
	if json.Unmarshal(body, &r) != nil || len(r.Messages) < 2 {
		return "", false
	}
	system, user := r.Messages[0].Content, r.Messages[len(r.Messages)-1].Content
	if f, ok := read(user); ok {
		return judge(system, user, string(r.Seed), f), true
	}
	if c, ok := readCancellation(user); ok {
		return c.judge(system, user, string(r.Seed)), true
	}
	_, data, ok := strings.Cut(user, "\n{")
	if !ok {
		return "", false
	}
	return reflect([]byte("{"+data), mostOperations(system))
}

var bound = regexp.MustCompile(`At most (\d+) operations`)

// mostOperations returns how many operations a prompt allows, at most two: as people do.
func mostOperations(system string) int {
	if m := bound.FindStringSubmatch(system); m != nil && m[1] == "1" {
		return 1
	}
	return 2
}

// judge answers a ticket under the guidance in the system message.
func judge(guidance, ticket, seed string, f facts) string {
	r := deciding(f)
	right, entry := Guessed, 0
	if entry = stated(guidance, r.text); entry > 0 {
		right = Known
	}
	verdict := r.verdict
	if draw(ticket, seed) >= right {
		verdict = map[string]string{Refund: Refuse, Refuse: Refund}[verdict]
	}
	why := "No entry decides this."
	if entry > 0 {
		why = fmt.Sprintf("Entry [%d] decides this.", entry)
	}
	return why + "\nVerdict: " + verdict
}

// lesson returns the text of the rule that decides a ticket.
func lesson(ticket string) (text string, ok bool) {
	if f, ok := read(ticket); ok {
		return deciding(f).text, true
	}
	c, ok := readCancellation(ticket)
	return c.rule(), ok
}

// stated returns the number of the entry that states a rule; 0 if none does.
func stated(guidance, text string) int {
	for line := range strings.Lines(guidance) {
		number, entry, found := strings.Cut(strings.TrimSpace(line), ". ")
		if n, err := strconv.Atoi(number); found && err == nil && strings.EqualFold(entry, text) {
			return n
		}
	}
	return 0
}

// draw returns a number from 0 to 1 that a ticket and a seed decide.
func draw(ticket, seed string) float64 {
	sum := blake3.Sum256([]byte(seed + "\x00" + ticket))
	n := 0.0
	for _, b := range sum[:6] {
		n = (n + float64(b)) / 256
	}
	return n
}

// operation is one of a plan.
type operation struct {
	Op       string   `json:"op"`
	Entries  []int    `json:"entries,omitempty"`
	Text     string   `json:"text"`
	Reason   string   `json:"reason"`
	Evidence []string `json:"evidence"`
}

// shown is the data of a prompt of reflection: one of the last three members.
type shown struct {
	Guidance struct {
		Entries []struct{ Text string } `json:"entries"`
	} `json:"guidance"`
	Ticket  string `json:"ticket"`
	Reports []struct{ Ticket, Lesson string }
	// Proposals are the operations of which a plan is made.
	Proposals []operation
}

// reflect answers a prompt of reflection.
func reflect(data []byte, most int) (string, bool) {
	var s shown
	if json.Unmarshal(data, &s) != nil {
		return "", false
	}
	var out any
	switch {
	case s.Ticket != "":
		text, ok := lesson(s.Ticket)
		if !ok {
			return "", false
		}
		out = map[string]string{"summary": "The answers differ because no entry states what decides this.", "lesson": text}
	case s.Reports != nil:
		out = map[string]any{"operations": propose(s, most)}
	default:
		var plan []operation
		for _, o := range s.Proposals {
			if !slices.ContainsFunc(plan, func(p operation) bool { return p.Text == o.Text }) {
				plan = append(plan, o)
			}
		}
		out = map[string]any{"operations": plan}
	}
	b, err := json.Marshal(out)
	return string(b), err == nil
}

// propose returns an operation for each rule that the guidance lacks and that reports ask
// for, the most wanted first.
func propose(s shown, most int) (ops []operation) {
	ops = []operation{}
	for _, text := range append(Rules(), CancellationRules()...) {
		has := func(e struct{ Text string }) bool { return e.Text == text }
		if slices.ContainsFunc(s.Guidance.Entries, has) {
			continue
		}
		o := operation{Op: "add", Text: text, Reason: "Several tickets need this rule."}
		for _, r := range s.Reports {
			if r.Lesson == text {
				o.Evidence = append(o.Evidence, r.Ticket)
			}
		}
		if len(o.Evidence) > 0 {
			ops = append(ops, o)
		}
	}
	slices.SortStableFunc(ops, func(a, b operation) int { return len(b.Evidence) - len(a.Evidence) })
	return ops[:min(len(ops), most)]
}

// Ticket returns the content and the label of the n-th ticket.
func Ticket(n int) (content, label string) {
	sum := blake3.Sum256([]byte("ticket " + strconv.Itoa(n)))
	pick := func(i int, of ...string) string { return of[int(sum[i])%len(of)] }
	days := []int{2, 5, 9, 13, 14, 15, 21, 30, 31, 44, 60}[int(sum[0])%11]
	kind := pick(1, "physical", "physical", "physical", "downloaded")
	item := pick(2, "lamp", "kettle", "jacket", "mug", "chair", "novel", "headset", "rug", "clock", "game")
	content = fmt.Sprintf("A customer returned a %s %s on day %d (%s, %s)", kind, item, days,
		pick(3, "broken", "fine"), pick(4, "new", "used"))
	f, _ := read(content)
	return content, deciding(f).verdict
}
