package guidance_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/guidance"
	"rollout/shared/fault"
)

// start returns step 0 with the entries.
func start(t testing.TB, scaffold string, entries ...string) guidance.Guidance {
	t.Helper()
	g, err := guidance.New("photos", scaffold, entries)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The bytes and the id are part of the format: guidance.json, and what the next step
// names as its origin.
func TestEncodingIsGolden(t *testing.T) {
	t.Parallel()
	g := start(t, "Judge the photos <alone>.\n", "A photo without a date is no evidence.", "Größe & Form  zählen.")
	const want = `{
  "schema": 1,
  "mission": "photos",
  "step": 0,
  "from": "",
  "scaffold": "Judge the photos <alone>.",
  "entries": [
    {
      "text": "A photo without a date is no evidence.",
      "hits": 0,
      "misses": 0,
      "last_used": 0,
      "since": 0
    },
    {
      "text": "Größe & Form zählen.",
      "hits": 0,
      "misses": 0,
      "last_used": 0,
      "since": 0
    }
  ]
}
`
	if diff := cmp.Diff(want, string(g.Encode())); diff != "" {
		t.Error(diff)
	}
	const id = "49acb06693ba1f54acd61732d13d6e54ba75e5f9efbeb9ab4beb7ec6d51de64d"
	if got := g.ContentID().String(); got != id {
		t.Errorf("the id is %s, want %s", got, id)
	}
	if got := string(start(t, "").Encode()); !strings.HasSuffix(got, "\"scaffold\": \"\",\n  \"entries\": []\n}\n") {
		t.Errorf("without entries: %s", got)
	}
}

// usual returns the limits of a config that says nothing.
func usual() guidance.Limits {
	return guidance.Limits{Entries: 40, EntryBytes: 600, TotalTokens: 2000, Operations: 8}
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	t.Parallel()
	for _, g := range []guidance.Guidance{start(t, ""), start(t, "Scaffold.", "a", "b"), later(t)} {
		got, err := guidance.Decode(g.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got.ContentID() != g.ContentID() {
			t.Errorf("decoded %s, want %s", got.Encode(), g.Encode())
		}
	}
}

// later returns a step after the first, with counts.
func later(t testing.TB) guidance.Guidance {
	g := start(t, "Scaffold.", "a", "b").Count(map[int]guidance.Tally{1: {Hits: 3, Misses: 1}})
	plan := guidance.Plan{Operations: []guidance.Operation{
		{Kind: guidance.Rewrite, Entries: []int{2}, Text: "c", Reason: "r", Evidence: []string{"t"}}}}
	g, err := g.Apply(plan, guidance.Applying{Limits: usual()})
	if err != nil {
		t.Fatal(err)
	}
	return g.Count(map[int]guidance.Tally{2: {Hits: 1}})
}

// Each case changes the encoding of a guidance, and has a part of the error.
func TestDecodeRefusesOtherBytes(t *testing.T) {
	t.Parallel()
	whole, origin := string(later(t).Encode()), later(t).From
	for name, c := range map[string]struct{ old, new, want string }{
		"nothing":           {whole, "", "EOF"},
		"not JSON":          {whole, "scaffold", "invalid character"},
		"trailing text":     {"]\n}\n", "]\n} x", "after top-level value"},
		"twice the member":  {`"step": 1,`, `"step": 1, "step": 2,`, "duplicate"},
		"unknown member":    {`"step": 1,`, `"step": 1, "steps": 2,`, "unknown"},
		"wrong case":        {`"step"`, `"Step"`, "unknown"},
		"wrong type":        {`"step": 1,`, `"step": "1",`, "/step"},
		"fraction":          {`"hits": 3,`, `"hits": 3.5,`, "/entries/0/hits"},
		"invalid UTF-8":     {`"Scaffold."`, "\"\xff\"", "UTF-8"},
		"other schema":      {`"schema": 1,`, `"schema": 2,`, "schema is 2, and this version of rollout reads 1"},
		"no mission":        {`"photos"`, `""`, "mission is empty"},
		"negative step":     {`"step": 1,`, `"step": -1,`, "step is -1"},
		"no origin":         {`"from": "`, `"from": "0`, "the 64 hex digits of the step before"},
		"capital digits":    {origin, strings.ToUpper(origin), "the 64 hex digits of the step before"},
		"origin of step 0":  {`"step": 1,`, `"step": 0,`, "leave it empty"},
		"empty text":        {`"text": "a"`, `"text": " "`, "entry 1: the text is empty"},
		"line break":        {`"text": "a"`, `"text": "a\n3. b"`, `write "a 3. b"`},
		"decomposed":        {`"text": "a"`, `"text": "o\u0308"`, `write "ö"`},
		"control character": {`"text": "a"`, `"text": "a\u0007"`, "U+0007"},
		"repeated":          {`"text": "a"`, `"text": "C"`, "entry 2 repeats entry 1"},
		"negative count":    {`"hits": 3,`, `"hits": -3,`, "entry 1: hits are -3"},
		"huge count":        {`"hits": 3,`, `"hits": 9007199254740992,`, "hits are 9007199254740992"},
		"used in future":    {`"last_used": 1`, `"last_used": 2`, "entry 2: last_used is 2"},
		"since a future":    {`"since": 1`, `"since": 2`, "since 2"},
	} {
		b := strings.Replace(whole, c.old, c.new, 1)
		if b == whole {
			t.Fatalf("%s: %s does not contain %q", name, whole, c.old)
		}
		if _, err := guidance.Decode([]byte(b)); err == nil || !strings.Contains(err.Error(), c.want) ||
			!fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestNewNormalizesAndChecks(t *testing.T) {
	t.Parallel()
	g := start(t, "  Judge.\n\n", " a\n\tb\u2028c ", "family \U0001F468\u200D\U0001F469\u200D\U0001F467", "o\u0308")
	want := "Judge.\n\n1. a b c\n2. family \U0001F468\u200D\U0001F469\u200D\U0001F467\n3. ö"
	if got := g.Text(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		mission, scaffold string
		entries           []string
		want              string
	}{
		"no mission":       {"", "", nil, "mission is empty"},
		"bad mission":      {"\xff", "", nil, "not UTF-8"},
		"bad scaffold":     {"m", "\xff", nil, "scaffold is not UTF-8"},
		"empty entry":      {"m", "", []string{"a", " "}, "entry 2: the text is empty"},
		"bad entry":        {"m", "", []string{"\xff"}, "entry 1: the text is not valid UTF-8"},
		"repeated entry":   {"m", "", []string{"Rule one", "b", "rule  ONE"}, "entry 3 repeats entry 1"},
		"right to left":    {"m", "", []string{"a\u202eb"}, "U+202E"},
		"zero width space": {"m", "", []string{"a\u200bb"}, "U+200B"},
		"tag":              {"m", "", []string{"a\U000E0041"}, "U+E0041"},
		"escape":           {"m", "", []string{"\x1b[31m"}, "U+001B"},
	} {
		if _, err := guidance.New(c.mission, c.scaffold, c.entries); err == nil ||
			!strings.Contains(err.Error(), c.want) || !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTextLeavesOutWhatIsEmpty(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		g    guidance.Guidance
		want string
	}{
		{start(t, ""), ""},
		{start(t, "S."), "S."},
		{start(t, "", "a"), "1. a"},
		{start(t, "S.\nT.", "a", "b"), "S.\nT.\n\n1. a\n2. b"},
	} {
		if got := c.g.Text(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestCheckNamesTheLimit(t *testing.T) {
	t.Parallel()
	g := start(t, strings.Repeat("The scaffold does not count. ", 100), "four", "ä", "six")
	for name, c := range map[string]struct {
		limits guidance.Limits
		want   string
	}{
		"default": {usual(), ""},
		// "1. four\n2. ä\n3. six" has 20 bytes.
		"exact":   {guidance.Limits{Entries: 3, EntryBytes: 4, TotalTokens: 5}, ""},
		"entries": {guidance.Limits{Entries: 2, EntryBytes: 4, TotalTokens: 5}, "too_many_entries: the guidance has 3"},
		"bytes":   {guidance.Limits{Entries: 3, EntryBytes: 3, TotalTokens: 5}, "entry_too_long: entry 1 has 4 bytes"},
		"tokens":  {guidance.Limits{Entries: 3, EntryBytes: 4, TotalTokens: 4}, "too_many_tokens: the entries have about 5"},
	} {
		err := c.limits.Check(g)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestCountAddsToEntriesThatExist(t *testing.T) {
	t.Parallel()
	before := later(t)
	got := before.Count(map[int]guidance.Tally{0: {Hits: 9}, -1: {Hits: 9}, 3: {Misses: 9}, 1: {Misses: 2}})
	want := []guidance.Entry{{Text: "a", Hits: 3, Misses: 3, LastUsed: 1}, {Text: "c", Hits: 1, LastUsed: 1, Since: 1}}
	if diff := cmp.Diff(want, got.Entries); diff != "" {
		t.Error(diff)
	}
	huge := before.Count(map[int]guidance.Tally{1: {Hits: 1 << 51, Misses: 1 << 50}})
	if _, err := guidance.Decode(huge.Encode()); err != nil {
		t.Errorf("counts grow without a bound: %v", err)
	}
	if diff := cmp.Diff(later(t), before); diff != "" {
		t.Errorf("the argument changed: %s", diff)
	}
}
