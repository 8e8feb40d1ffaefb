package trials

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/dialect"
)

func TestLinesOfTrialsStandInTheOrderOfTheSchedule(t *testing.T) {
	t.Parallel()
	c := twoVariants()
	c.Design.Chain = "of"
	c.Variants[1].Sampling = &config.Sampling{Temperature: new(float64), Stop: []string{"."}}
	f := newFixture(t, c, `{"id":"a","prompt":"1+1?","answer":2,"of":"s"}`+"\n"+
		`{"id":7,"messages":null,"prompt":"x<y?","meta":{"k": [1, 2]}}`+"\n")
	want := []string{
		`{"id":"t0.plain.r0","messages":[{"role":"user","content":"1+1?"}],"seed":SEED,"trial":{"schedule_idx":0,"slot":0,` +
			`"trial_id":"t0.plain.r0","task":"a","variant":"plain","replication":0,"chain":1},` +
			`"task":{"id":"a","answer":2,"of":"s"}}`,
		`{"id":"t0.terse.r0","messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"Q: 1+1?"}],` +
			`"temperature":0,"stop":["."],"seed":SEED,"trial":{"schedule_idx":1,"slot":2,"trial_id":"t0.terse.r0","task":"a",` +
			`"variant":"terse","replication":0,"chain":1},"task":{"id":"a","answer":2,"of":"s"}}`,
		`{"id":"t1.plain.r0","messages":[{"role":"user","content":"x<y?"}],"seed":SEED,"trial":{"schedule_idx":2,"slot":4,` +
			`"trial_id":"t1.plain.r0","task":"7","variant":"plain","replication":0},` +
			`"task":{"id":7,"meta":{"k":[1,2]}}}`,
	}
	lines := f.lines()
	if len(lines) != 8 {
		t.Fatalf("%d lines, want 8", len(lines))
	}
	for n, w := range want {
		before, after, _ := strings.Cut(lines[n], `"seed":`)
		_, after, _ = strings.Cut(after, ",")
		if got := before + `"seed":SEED,` + after; got != w+"\n" {
			t.Errorf("line %d is\n%swant\n%s", n, got, w)
		}
	}
	for n, w := range []string{"t0.plain.r1", "t0.terse.r1", "t1.plain.r1", "t1.terse.r1"} {
		if !strings.HasPrefix(lines[4+n], `{"id":"`+w+`"`) {
			t.Errorf("line %d is %s", 4+n, lines[4+n])
		}
	}
}

// TestTargetsAreNeverAsked checks that what graders expect is in no member of a line that is sent.
func TestTargetsAreNeverAsked(t *testing.T) {
	t.Parallel()
	for _, line := range newFixture(t, twoVariants(), tasks(3)).lines() {
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(members["task"]), "sentinel") {
			t.Errorf("a line does not carry its task: %s", line)
		}
		delete(members, "task")
		if rest, _ := json.Marshal(members); strings.Contains(string(rest), "sentinel") {
			t.Errorf("a target is sent: %s", rest)
		}
		it, err := dialect.Parse(dialect.Plain, []byte(line))
		if err != nil || strings.Contains(string(it.Request), "sentinel") {
			t.Errorf("the request is %s (%v)", it.Request, err)
		}
	}
}

// byID returns the lines of trials by id, without their schedule index and slot, which say when they
// are begun.
func (f *fixture) byID() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, line := range f.lines() {
		of, err := readTrial([]byte(line))
		f.check(err)
		was := string(encode(of))
		of.Index, of.Slot = 0, 0
		out[of.ID] = strings.Replace(line, was, string(encode(of)), 1)
	}
	return out
}

// TestMoreOfADesignChangesNoOtherTrial adds a replication, a variant and a task, and takes another
// order: each trial that there was before has the same request and seed.
func TestMoreOfADesignChangesNoOtherTrial(t *testing.T) {
	t.Parallel()
	before := newFixture(t, twoVariants(), tasks(4)).byID()
	for name, f := range map[string]func() *fixture{
		"replication": func() *fixture {
			c := twoVariants()
			c.Design.Replications = 3
			return newFixture(t, c, tasks(4))
		},
		"variant": func() *fixture {
			c := twoVariants()
			c.Variants = append(c.Variants, config.Variant{Name: "third"})
			return newFixture(t, c, tasks(4))
		},
		"task": func() *fixture { return newFixture(t, twoVariants(), tasks(5)) },
		"order": func() *fixture {
			c := twoVariants()
			c.Design.Order = config.TrialsRandom
			return newFixture(t, c, tasks(4))
		},
	} {
		after, seeds := f().byID(), map[string]string{}
		for id, line := range before {
			if after[id] != line {
				t.Errorf("%s: %s was\n%sand is\n%s", name, id, line, after[id])
			}
		}
		for id, line := range after {
			_, seed, _ := strings.Cut(line, `"seed":`)
			seed, _, _ = strings.Cut(seed, ",")
			if other, dup := seeds[seed]; dup {
				t.Errorf("%s: %s and %s have the seed %s", name, id, other, seed)
			}
			seeds[seed] = id
		}
	}
}

// TestEveryTaskIsReadAgain writes more trials than are written at once, of tasks of which some are
// large, from a file with a byte order mark and other line ends.
func TestEveryTaskIsReadAgain(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("\xEF\xBB\xBF")
	const n = 3000
	for i := range n {
		size := random.IntN(40)
		if i%500 == 7 {
			size = 1 << 20
		}
		end := []string{"\n", "\r\n", "\n\n"}[i%3]
		fmt.Fprintf(&b, "{\"id\":%d,\"prompt\":\"p%s\"}%s", i, strings.Repeat("x", size), end)
	}
	for _, order := range []string{config.TrialsInterleaved, config.TrialsRandom, config.TrialsByVariant,
		config.TrialsByTask} {
		c := twoVariants()
		c.Design.Order, c.Design.Replications = order, 1
		seen := map[string]bool{}
		for index, line := range newFixture(t, c, b.String()).lines() {
			of, err := readTrial([]byte(line))
			if err != nil || of.Index != uint64(index) || seen[of.ID] || !strings.HasPrefix(of.ID, "t"+of.Task+".") {
				t.Fatalf("%s: trial %d is %+v (%v)", order, index, of, err)
			}
			seen[of.ID] = true
		}
		if len(seen) != 2*n {
			t.Errorf("%s: %d trials", order, len(seen))
		}
	}
}

func TestLinesThatAreNoTasksEndTheRunBeforeATrial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":          {"{\n", "line 1: it is not valid JSON"},
		"no object":        {"[1]\n", `it is not a JSON object: write {"id": …, "prompt": …}`},
		"no UTF-8":         {"{\"id\":\"\xff\",\"prompt\":\"a\"}", "it is not valid UTF-8"},
		"no id":            {`{"prompt":"a"}`, "it has no id"},
		"id of a list":     {`{"id":[1],"prompt":"a"}`, "its id is not a text"},
		"half a character": {`{"id":"\ud800","prompt":"a"}`, "its id has half of a surrogate pair"},
		"long id":          {`{"id":"` + strings.Repeat("i", 513) + `","prompt":"a"}`, "its id has 513 bytes, at most 512"},
		"member twice":     {`{"id":"a","prompt":"a","id":"b"}`, `it has the member "id" twice`},
		"id twice": {`{"id":"a","prompt":"a"}` + "\n\n" + `{"id":"a","prompt":"b"}`,
			`line 3: line 1 has the same id "a"`},
		"no prompt": {`{"id":"a"}`, `it has no member "prompt", which the messages of the variant plain show`},
		"prompt and messages": {`{"id":"a","prompt":"a","messages":[{"role":"user","content":"b"}]}`,
			"it has both prompt and messages"},
		"no text": {`{"id":"a","prompt":5}`, "its prompt is not a text"},
		"blank":   {`{"id":"a","prompt":" "}`, "its prompt is not a text, or an empty one"},
		"no place": {`{"id":"a","messages":[{"role":"user","content":"b"}]}`,
			"the variant terse has a prompt in their place"},
		"messages of text": {`{"id":"a","messages":"b"}`,
			"its messages are not a list"},
		"no messages": {`{"id":"a","messages":[]}`, "its messages are an empty list"},
		"many":        {strings.Repeat("{\n", 9), "9 lines are not tasks, and no trial was begun: line 1: "},
	} {
		run := twoVariants()
		if got := newFixture(t, run, c.text).refusal(); !strings.Contains(got, c.want) ||
			!strings.Contains(got, "no trial was begun") {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTaskWithoutAMemberOfATemplateIsRefused(t *testing.T) {
	t.Parallel()
	c := twoVariants()
	c.Variants[1].System = "You are {persona}. Answer in JSON: {\"a\": {}}"
	f := newFixture(t, c, `{"id":"a","prompt":"p","persona":"a judge"}`+"\n"+`{"id":"b","prompt":"p","persona":null}`)
	const want = `line 2: it has no member "persona", which the messages of the variant terse show`
	if got := f.refusal(); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	f = newFixture(t, c, `{"id":"a","prompt":"{persona} p","persona":{"x": 1}}`)
	const asked = `{"role":"system","content":"You are {\"x\":1}. Answer in JSON: {\"a\": {}}"},` +
		`{"role":"user","content":"Q: {persona} p"}`
	if got := f.lines()[1]; !strings.Contains(got, asked) {
		t.Errorf("asked is %s, want %s", got, asked)
	}
}

func TestRunOfTooManyTrialsIsRefused(t *testing.T) {
	t.Parallel()
	c := twoVariants()
	c.Design.Replications = 1000
	for n := len(c.Variants); n < 50; n++ {
		c.Variants = append(c.Variants, config.Variant{Name: fmt.Sprint("v", n)})
	}
	const want = "line 21 is one of more than 20 tasks, and the run would have more than 1000000 trials"
	if got := newFixture(t, c, tasks(30)).refusal(); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestHostileNamesStayText checks that ids with quotes, braces and control characters come back as
// they were, and make no member of a line.
func TestHostileNamesStayText(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`"},"seed":1,"x":{"`, "{prompt}", "a\nb", "\u2028", "../../etc", "<script>", "t0.plain.r0",
		"\x00"} {
		quoted, _ := json.Marshal(id)
		f := newFixture(t, twoVariants(), fmt.Sprintf(`{"id":%s,"prompt":"p","%s":1}`, quoted, "trial"))
		for _, line := range f.lines() {
			of, err := readTrial([]byte(line))
			if err != nil || of.Task != id || strings.Count(line, "\n") != 1 {
				t.Errorf("%q is %+v of %s (%v)", id, of, line, err)
			}
			variant, _, err := ShardOf(f.m, []byte(line))
			if err != nil || f.m.Config.Variants[variant].Name != of.Variant {
				t.Errorf("%q: the shard of %s is of variant %d (%v)", id, line, variant, err)
			}
		}
	}
}

func TestChainsAreNumberedByTheirFirstTasks(t *testing.T) {
	t.Parallel()
	c := twoVariants()
	c.Design.Chain, c.Design.Replications = "meta.session", 1
	f := newFixture(t, c, `{"id":1,"prompt":"p","meta":{"session":"b"}}`+"\n"+`{"id":2,"prompt":"p"}`+"\n"+
		`{"id":3,"prompt":"p","meta":{"session":7}}`+"\n"+`{"id":4,"prompt":"p","meta":{"session":"b"}}`)
	var got []string
	for _, line := range f.lines() {
		variant, chain, err := ShardOf(f.m, []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d:%d", variant, chain))
	}
	if text, want := strings.Join(got, " "), "0:1 1:1 0:0 1:0 0:2 1:2 0:1 1:1"; text != want {
		t.Errorf("variants and chains are %s, want %s", text, want)
	}
}
