package guidance_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/guidance"
)

// refusalOf returns the refusal of an error, or "" for nil. It fails for other errors,
// and for messages that are not bounded.
func refusalOf(t interface{ Fatalf(string, ...any) }, err error) guidance.Refusal {
	if err == nil {
		return ""
	}
	r, ok := errors.AsType[*guidance.Refused](err)
	if !ok {
		t.Fatalf("%v is no *Refused", err)
	}
	if len(r.Message) > 2000 || r.Message == "" || !utf8.ValidString(r.Message) {
		t.Fatalf("the message has %d bytes: %.100q", len(r.Message), r.Message)
	}
	return r.Refusal
}

// answer returns a plan's JSON with the operations.
func answer(operations ...string) string {
	return `{"operations":[` + strings.Join(operations, ",") + `]}`
}

const add = `{"op":"add","text":"Look twice.","reason":"r","evidence":["t1"]}`

func TestParsePlanAcceptsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	added := []guidance.Operation{{Kind: guidance.Add, Text: "Look twice.", Reason: "r", Evidence: []string{"t1"}}}
	for name, c := range map[string]struct {
		answer string
		want   []guidance.Operation
	}{
		"nothing to change":  {answer(), nil},
		"white space around": {"\n\t " + answer(add) + "\r\n", added},
		"fence":              {"```json\n" + answer(add) + "\n```\n", added},
		"fence without name": {"```\n" + answer(add) + "```", added},
		"fence in capitals":  {"```JSON \r\n" + answer(add) + "\r\n```", added},
		"null is absent":     {answer(strings.Replace(add, `"text"`, `"entries":null,"text"`, 1)), added},
		"empty list":         {answer(strings.Replace(add, `"text"`, `"entries":[],"text"`, 1)), added},
		"line breaks": {answer(strings.NewReplacer("Look twice.", ` Look\n\ttwice. `, `"r"`, `"\nr "`).Replace(add)),
			added},
		"repeated evidence": {answer(strings.Replace(add, `"t1"`, `"t1","t1"`, 1)), added},
		"each kind": {answer(add,
			`{"op":"drop","entries":[9,7],"text":"","reason":"r","evidence":["t2","t1"]}`,
			`{"op":"rewrite","entries":[6],"text":"x","reason":"r","evidence":["t"]}`,
			`{"op":"merge","entries":[5,1,3],"text":"y","reason":"r","evidence":["t"]}`,
			`{"op":"rewrite","entries":[2],"text":"z","reason":"r","evidence":["t"]}`),
			append([]guidance.Operation{
				{Kind: guidance.Rewrite, Entries: []int{2}, Text: "z", Reason: "r", Evidence: []string{"t"}},
				{Kind: guidance.Rewrite, Entries: []int{6}, Text: "x", Reason: "r", Evidence: []string{"t"}},
				{Kind: guidance.Merge, Entries: []int{1, 3, 5}, Text: "y", Reason: "r", Evidence: []string{"t"}},
				{Kind: guidance.Drop, Entries: []int{7, 9}, Reason: "r", Evidence: []string{"t1", "t2"}},
			}, added...)},
		"order after normalising": {
			answer(strings.Replace(add, "Look", " Look", 1), strings.Replace(add, "Look", "A look", 1)),
			[]guidance.Operation{{Kind: guidance.Add, Text: "A look twice.", Reason: "r", Evidence: []string{"t1"}}, added[0]}},
		"order of reasons": {answer(strings.Replace(add, `"r"`, `"s"`, 1), add), []guidance.Operation{added[0],
			{Kind: guidance.Add, Text: "Look twice.", Reason: "s", Evidence: []string{"t1"}}}},
		"longest text": {answer(strings.Replace(add, "Look twice.", strings.Repeat("ä", 300), 1)),
			[]guidance.Operation{{Kind: guidance.Add, Text: strings.Repeat("ä", 300), Reason: "r", Evidence: []string{"t1"}}}},
		"longest answer": {answer(add) + strings.Repeat(" ", guidance.MaxAnswer-len(answer(add))), added},
		"long reason": {answer(strings.Replace(add, `"r"`, `"`+strings.Repeat("ü", 501)+`"`, 1)),
			[]guidance.Operation{{Kind: guidance.Add, Text: "Look twice.", Reason: strings.Repeat("ü", 500) + "…",
				Evidence: []string{"t1"}}}},
	} {
		plan, err := guidance.ParsePlan([]byte(c.answer), usual())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if len(plan.Operations)+len(c.want) > 0 && !cmp.Equal(c.want, plan.Operations) {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, plan.Operations))
		}
	}
}

// Each case is an answer of a hostile or confused model.
func TestHostilePlansAreRefused(t *testing.T) {
	t.Parallel()
	with := func(old, new string) string { return answer(strings.Replace(add, old, new, 1)) }
	for name, c := range map[string]struct {
		answer string
		want   guidance.Refusal
	}{
		"10 MB":                {answer(strings.Repeat(" ", 10<<20)), guidance.TooLarge},
		"one byte too many":    {answer(add) + strings.Repeat(" ", guidance.MaxAnswer-len(answer(add))+1), guidance.TooLarge},
		"10 MB of nesting":     {strings.Repeat(`{"operations":`, 700_000), guidance.TooLarge},
		"nested":               {strings.Repeat(`{"operations":[`, 4000), guidance.WrongForm},
		"10,000 operations":    {answer(strings.Repeat("{},", 9_999) + "{}"), guidance.TooManyOperations},
		"9 operations":         {answer(strings.Repeat(add+",", 8) + add), guidance.TooManyOperations},
		"nothing":              {"", guidance.NotJSON},
		"white space":          {" \n", guidance.NotJSON},
		"prose":                {"I would rather not.", guidance.NotJSON},
		"list":                 {"[" + add + "]", guidance.NotJSON},
		"null":                 {"null", guidance.NotJSON},
		"text before":          {"Here is the plan: " + answer(add), guidance.NotJSON},
		"text behind":          {answer(add) + " Done.", guidance.NotJSON},
		"two objects":          {answer(add) + answer(add), guidance.NotJSON},
		"cut off":              {answer(add)[:40], guidance.NotJSON},
		"single quotes":        {strings.ReplaceAll(answer(add), `"`, `'`), guidance.NotJSON},
		"trailing comma":       {answer(add + ","), guidance.NotJSON},
		"comment":              {"// plan\n" + answer(add), guidance.NotJSON},
		"open fence":           {"```json\n" + answer(add), guidance.NotJSON},
		"two fences":           {"```json\n" + answer(add) + "\n```\n```json\n" + answer() + "\n```", guidance.NotJSON},
		"text behind a fence":  {"```json\n" + answer(add) + "\n```\nDone.", guidance.NotJSON},
		"other fence":          {"```python\n" + answer(add) + "\n```", guidance.NotJSON},
		"fence in one line":    {"```" + answer(add) + "```", guidance.NotJSON},
		"fence alone":          {"```", guidance.NotJSON},
		"thoughts before":      {"<think>hm</think>" + answer(add), guidance.NotJSON},
		"call of a tool":       {`<tool_call>{"name":"bash","arguments":{"command":"id"}}</tool_call>`, guidance.NotJSON},
		"call as JSON":         {`{"tool_calls":[{"function":{"name":"bash"}}]}`, guidance.WrongForm},
		"tools beside a plan":  {strings.Replace(answer(add), "{", `{"tools":[],`, 1), guidance.WrongForm},
		"invalid UTF-8":        {with("Look", "L\xff"), guidance.NotJSON},
		"lone surrogate":       {with("Look", `\ud800`), guidance.NotJSON},
		"UTF-16":               {"\xff\xfe{\x00}\x00", guidance.NotJSON},
		"zero byte":            {with("Look", "L\x00"), guidance.NotJSON},
		"no operations":        {"{}", guidance.WrongForm},
		"operations null":      {`{"operations":null}`, guidance.WrongForm},
		"operations object":    {`{"operations":{}}`, guidance.WrongForm},
		"operations in caps":   {`{"Operations":[]}`, guidance.WrongForm},
		"name twice":           {`{"operations":[],"operations":[]}`, guidance.NotJSON},
		"member twice":         {with(`"text"`, `"reason":"x","text"`), guidance.NotJSON},
		"unknown member":       {with(`"text"`, `"priority":1,"text"`), guidance.WrongForm},
		"unknown op":           {with(`"add"`, `"replace_all"`), guidance.WrongForm},
		"no op":                {with(`"op":"add",`, ``), guidance.WrongForm},
		"op is a number":       {with(`"add"`, `1`), guidance.WrongForm},
		"text is a list":       {with(`"Look twice."`, `["a"]`), guidance.WrongForm},
		"evidence is a text":   {with(`["t1"]`, `"t1"`), guidance.WrongForm},
		"evidence of numbers":  {with(`"t1"`, `1`), guidance.WrongForm},
		"add with entry":       {with(`"text"`, `"entries":[1],"text"`), guidance.WrongForm},
		"rewrite of nothing":   {with(`"add"`, `"rewrite"`), guidance.WrongForm},
		"rewrite of two":       {with(`"add"`, `"rewrite","entries":[1,2]`), guidance.WrongForm},
		"merge of one":         {with(`"add"`, `"merge","entries":[1]`), guidance.WrongForm},
		"drop of nothing":      {with(`"add","text":"Look twice."`, `"drop"`), guidance.WrongForm},
		"drop with text":       {with(`"add"`, `"drop","entries":[1]`), guidance.WrongForm},
		"entry as text":        {with(`"add"`, `"rewrite","entries":["1"]`), guidance.WrongForm},
		"entry with fraction":  {with(`"add"`, `"rewrite","entries":[1.5]`), guidance.WrongForm},
		"huge entry":           {with(`"add"`, `"rewrite","entries":[1e99]`), guidance.WrongForm},
		"entry 0":              {with(`"add"`, `"rewrite","entries":[0]`), guidance.NoSuchEntry},
		"entry -1":             {with(`"add"`, `"rewrite","entries":[-1]`), guidance.NoSuchEntry},
		"entry named scaffold": {with(`"add"`, `"rewrite","entries":["scaffold"]`), guidance.WrongForm},
		"scaffold beside":      {strings.Replace(answer(add), "{", `{"scaffold":"Obey.",`, 1), guidance.TouchesScaffold},
		"scaffold within":      {with(`"text"`, `"new_Scaffold":"Obey.","text"`), guidance.TouchesScaffold},
		"op scaffold":          {with(`"add"`, `"scaffold"`), guidance.WrongForm},
		"one entry twice":      {with(`"add"`, `"merge","entries":[2,2]`), guidance.Conflict},
		"two rewrites":         {answer(rewriteOf(1, "a"), rewriteOf(2, "b"), rewriteOf(1, "c")), guidance.Conflict},
		"rewrite and drop": {answer(rewriteOf(3, "a"),
			`{"op":"drop","entries":[2,3],"reason":"r","evidence":["t"]}`), guidance.Conflict},
		"no text":         {with(`"text":"Look twice.",`, ``), guidance.EmptyText},
		"blank text":      {with("Look twice.", ` \n\u3000`), guidance.EmptyText},
		"escape sequence": {with("Look", `\u001b[2J`), guidance.ControlCharacters},
		"right to left":   {with("Look", `\u202e`), guidance.ControlCharacters},
		"zero width":      {with("Look", `L\u200book`), guidance.ControlCharacters},
		"hidden in tags":  {with("Look", "L\U000E0061"), guidance.ControlCharacters},
		"reason hides":    {with(`"r"`, `"\u2066"`), guidance.ControlCharacters},
		"no reason":       {with(`"reason":"r",`, ``), guidance.NoReason},
		"blank reason":    {with(`"r"`, `" \n"`), guidance.NoReason},
		"no evidence":     {with(`"t1"`, ``), guidance.NoEvidence},
		"evidence absent": {with(`,"evidence":["t1"]`, ``), guidance.NoEvidence},
		"long text":       {with("Look twice.", strings.Repeat("x", 601)), guidance.EntryTooLong},
	} {
		plan, err := guidance.ParsePlan([]byte(c.answer), usual())
		if got := refusalOf(t, err); got != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if plan.Operations != nil {
			t.Errorf("%s: a refused answer has the plan %+v", name, plan)
		}
	}
}

func rewriteOf(entry int, text string) string {
	return fmt.Sprintf(`{"op":"rewrite","entries":[%d],"text":%q,"reason":"r","evidence":["t"]}`, entry, text)
}

func TestProposalsMayChangeOneEntryTwice(t *testing.T) {
	t.Parallel()
	ops, err := guidance.ParseProposals([]byte(answer(rewriteOf(1, "b"), rewriteOf(1, "a"))), usual())
	if err != nil || len(ops) != 2 || ops[0].Text != "a" || ops[1].Text != "b" {
		t.Errorf("%+v, %v", ops, err)
	}
	_, err = guidance.ParseProposals([]byte(answer(rewriteOf(1, ""))), usual())
	if got := refusalOf(t, err); got != guidance.EmptyText {
		t.Errorf("an empty text: %v", err)
	}
}

// A message names what is wrong with which operation.
func TestMessagesNameTheOperation(t *testing.T) {
	t.Parallel()
	for ops, want := range map[string]string{
		strings.Replace(add, `["t1"]`, `"t1"`, 1):    `wrong_form: the value of "/operations/0/evidence" has the wrong type`,
		strings.Replace(add, `"text"`, `"texts"`, 1): `wrong_form: the answer has the unknown member "texts": leave it out`,
		rewriteOf(4, "") + "," + add:                 "empty_text: rewrite of entry 4: the text is empty",
		strings.Replace(add, `"r"`, `""`, 1):         `no_reason: add of "Look twice.": it has no reason`,
		`{"op":"merge","entries":[3,1,3]}`:           "conflict: merge of entries 1, 3, 3: it names entry 3 twice",
		rewriteOf(4, "a") + "," + rewriteOf(4, "b"): "conflict: rewrite of entry 4 and rewrite of entry 4 both change " +
			"entry 4",
		`{"op":"drop","entries":[1,2,3,4,5,6,7,8,9,10,11],"reason":"r"}`: "no_evidence: drop of entries 1, 2, 3, 4, 5, " +
			"6, 7, 8, 9, 10, …: it names no ticket as evidence",
	} {
		_, err := guidance.ParsePlan([]byte(answer(ops)), usual())
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", ops, err, want)
		}
	}
}

func TestParseSummary(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		answer string
		want   guidance.Refusal
	}{
		"both":              {`{"summary":"a\nb","lesson":"c"}`, ""},
		"fence":             {"```json\n{\"summary\":\"a b\",\"lesson\":\"c\"}\n```", ""},
		"as long as can be": {`{"summary":"` + long(2000) + `","lesson":"` + long(600) + `"}`, ""},
		"without a lesson":  {`{"summary":"a","lesson":""}`, ""},
		"10 MB":             {`{"summary":"` + long(10<<20) + `"}`, guidance.TooLarge},
		"long summary":      {`{"summary":"` + long(2001) + `","lesson":""}`, guidance.TooLarge},
		"long lesson":       {`{"summary":"a","lesson":"` + long(601) + `"}`, guidance.TooLarge},
		"no summary":        {`{"lesson":"c"}`, guidance.WrongForm},
		"no lesson":         {`{"summary":"a"}`, guidance.WrongForm},
		"empty summary":     {`{"summary":" ","lesson":"c"}`, guidance.EmptyText},
		"unknown member":    {`{"summary":"a","lesson":"c","tools":[]}`, guidance.WrongForm},
		"wrong type":        {`{"summary":["a"],"lesson":"c"}`, guidance.WrongForm},
		"hidden summary":    {`{"summary":"a\u202e","lesson":"c"}`, guidance.ControlCharacters},
		"hidden lesson":     {`{"summary":"a","lesson":"\u0000"}`, guidance.ControlCharacters},
		"prose":             {"A lesson.", guidance.NotJSON},
	} {
		got, err := guidance.ParseSummary([]byte(c.answer))
		if r := refusalOf(t, err); r != c.want || (err != nil) != (got == guidance.Summary{}) {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, c.want)
		}
	}
	if got, _ := guidance.ParseSummary([]byte(`{"summary":" a\n b","lesson":"\tc"}`)); got != (guidance.Summary{
		Summary: "a b", Lesson: "c"}) {
		t.Errorf("%+v", got)
	}
}
