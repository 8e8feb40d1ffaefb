package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/shared/fault"
)

// badReply is a way in which an inference server fails a request. None names its cause.
type badReply struct {
	name   string
	how    failureMode
	status int    // of HTTP
	body   string // of the response
	event  bool   // the body is an event of a stream, after a 200
	// Words and class are those of an item's error row.
	words string
	class fault.Class
	// setting says that a run pauses if all its requests meet it: a user must mend the
	// cause. All others may pass.
	setting bool
}

// failureMode is what a bad reply does to the connection.
type failureMode int

const (
	replies failureMode = iota
	refuses             // the server takes no connection
	breaks              // the connection breaks
	hangs               // nothing comes
)

// refusal is a bad reply with a status of 4xx.
func refusal(status int, words string, setting bool) badReply {
	return badReply{name: fmt.Sprint(status), status: status, body: errorBody(words), words: words, class: fault.Refused,
		setting: setting}
}

// garbage is a bad reply with a body that is no answer.
func garbage(name, body, words string) badReply {
	return badReply{name: name, status: 200, body: body, words: words, class: fault.Engine, setting: true}
}

// errorBody is OpenAI's form of an error.
func errorBody(text string) string { return fmt.Sprintf(`{"error":{"message":%q}}`, text) }

// badReplies are the bad replies of a world by their names.
type badReplies map[string]badReply

func newBadReplies() badReplies {
	all := badReplies{}
	for _, r := range []badReply{
		refusal(401, "who are you", true),
		refusal(403, "no access", true),
		refusal(404, "The model mock does not exist.", true),
		refusal(408, "too slow", false),
		refusal(429, "slow down", false),
		garbage("HTML", "<html>maintenance</html>", "maintenance"),
		garbage("empty", "", "empty"),
		garbage("no choices", `{"id":"x","choices":[]}`, "choice"),
		{name: "500", status: 500, body: errorBody("boom"), words: "boom", class: fault.Engine},
		{name: "502", status: 502, body: "<html>bad gateway</html>", words: "bad gateway", class: fault.Engine},
		{name: "503", status: 503, body: errorBody("overloaded"), words: "overloaded", class: fault.Engine},
		{name: "event", status: 200, body: `{"error":{"message":"late","code":500}}`, event: true, words: "late",
			class: fault.Engine},
		{name: "closed", how: refuses},
		{name: "broken", how: breaks},
		{name: "hangs", how: hangs, words: "no token came", class: fault.Timeout},
	} {
		all[r.name] = r
	}
	return all
}

// episode is a fault of servers for a time.
type episode struct {
	server   int           // -1 for all
	from, to time.Duration // since the start of the world; to is 0 for one that does not end by itself
	bad      badReply
	hints    bool // requests that ask for no answer meet it, too
	setting  bool // it is a setting that a user has to mend
}

// serverFaults are the faults of a world's inference servers.
type serverFaults struct {
	prompts  []badReply // what the bad prompts meet for ever, by their number
	episodes []episode
	stays    bool    // the user resumes a run without mending the setting at fault
	busy     float64 // the share of other requests that meet a 429
}

// badPrompt marks prompts that fail. Its argument is their number in serverFaults.
const badPrompt = "bad prompt of kind %d:"

// drawServerFaults draws the faults of a world with so many inference servers: up to two
// kinds of bad prompts, up to three faults that pass, one server that is bad for ever while
// the other works, and a setting that is wrong from the beginning or from some time on.
func (w *world) drawServerFaults(servers int) (f serverFaults) {
	r, all := w.rand, newBadReplies()
	draw := func(label string, names ...string) badReply { return all[names[r.intN(label, len(names))]] }
	f.busy = []float64{0, 0.02, 0.3}[r.intN("busy", 3)]
	for range r.intN("bad prompts", 3) {
		f.prompts = append(f.prompts,
			draw("bad prompt", "403", "403", "429", "408", "hangs", "HTML", "no choices", "500", "event"))
	}
	for range r.intN("episodes", 4) {
		e := episode{server: r.intN("of server", servers+1) - 1, from: r.duration("from", 0, 30*time.Second),
			bad: draw("episode", "401", "404", "429", "408", "503", "502", "HTML", "empty", "no choices", "500", "event",
				"closed", "broken", "hangs"),
			hints: r.intN("hints", 2) == 0}
		longest := []time.Duration{3 * time.Second, 20 * time.Second, 100 * time.Second}[r.intN("longest", 3)]
		e.to = e.from + r.duration("length", 10*time.Millisecond, longest)
		f.episodes = append(f.episodes, e)
	}
	if servers == 2 && r.intN("bad server", 2) == 0 {
		f.episodes = append(f.episodes, episode{server: 1, hints: r.intN("hints", 2) == 0,
			bad: draw("bad for ever", "401", "404", "429", "408", "503", "HTML", "empty", "500", "event", "closed", "broken",
				"hangs")})
	}
	if r.intN("setting", 3) == 0 {
		e := episode{server: -1, setting: true, bad: draw("of setting", "401", "401", "403", "404", "HTML")}
		if r.intN("in mid-run", 2) == 0 {
			e.from = r.duration("from", 0, 15*time.Second)
		}
		if f.stays = e.bad.name != "HTML" && r.intN("stays", 3) == 0; f.stays {
			f.episodes = slices.DeleteFunc(f.episodes, func(e episode) bool { return e.to == 0 })
		}
		e.hints = !f.stays && r.intN("setting of hints", 4) == 0
		f.episodes = append(f.episodes, e)
	}
	return f
}

// meets returns what a request to the server meets at a time. A hint asks for no answer.
func (f *serverFaults) meets(server int, at time.Duration, hint bool) (badReply, time.Duration, bool) {
	for _, e := range f.episodes {
		if (e.server < 0 || e.server == server) && at >= e.from && (e.to == 0 || at < e.to) &&
			(e.hints || !hint || e.bad.how == refuses) {
			return e.bad, e.to, true
		}
	}
	return badReply{}, 0, false
}

// mend ends at a time all that a user can mend, and all that passes.
func (f *serverFaults) mend(at time.Duration) {
	for i := range f.episodes {
		if e := &f.episodes[i]; e.setting && e.to == 0 || e.to > at {
			e.to = max(at, 1)
		}
	}
}

// setting returns the setting at fault, and whether it is not mended.
func (f *serverFaults) setting() (bad badReply, open bool) {
	for _, e := range f.episodes {
		if e.setting {
			return e.bad, e.to == 0
		}
	}
	return badReply{}, false
}

// lastEnd returns when the last fault that passes has passed.
func (f *serverFaults) lastEnd() (last time.Duration) {
	for _, e := range f.episodes {
		last = max(last, e.to)
	}
	return last
}

// mayPause reports whether all requests failed at a time, some of them for a cause that
// only a user can mend.
func (f *serverFaults) mayPause(servers int, at time.Duration) bool {
	setting := false
	for n := range servers {
		bad, _, ok := f.meets(n, at, false)
		if !ok {
			return false
		}
		setting = setting || bad.setting
	}
	return setting
}

// pauses reports whether a run may pause at any time.
func (f *serverFaults) pauses() bool {
	return slices.ContainsFunc(f.episodes, func(e episode) bool { return e.bad.setting })
}

// badPromptIn returns what a bad prompt in the text meets; false if the text has none.
func (f *serverFaults) badPromptIn(text string) (badReply, bool) {
	for n, bad := range f.prompts {
		if strings.Contains(text, fmt.Sprintf(badPrompt, n)) {
			return bad, true
		}
	}
	return badReply{}, false
}

// explain reports whether the error row with these words and class is right for an item
// whose line has the text. A bad prompt's row has the words of its last failure, which may
// be that of a bad server: in a retry of bad prompts alone, nothing shows that the server is
// at fault. Other items have one if the user has not mended a setting.
func (f *serverFaults) explain(text string, class fault.Class, words string) bool {
	says := func(bad badReply) bool { return class == bad.class && strings.Contains(words, bad.words) }
	setting, open := f.setting()
	if f.stays && open && says(setting) {
		return true
	}
	bad, isBad := f.badPromptIn(text)
	isRefused, isPoison := strings.Contains(text, refusedPrompt), strings.Contains(text, poisonPrompt)
	if (isBad || isRefused || isPoison) && slices.ContainsFunc(f.episodes, func(e episode) bool { return says(e.bad) }) {
		return true
	}
	if isRefused {
		return class == fault.Refused && strings.Contains(words, refusedWords)
	}
	return isBad && says(bad)
}
