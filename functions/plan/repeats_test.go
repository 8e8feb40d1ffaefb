package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

func TestFirstLineWithAnIDWinsAcrossRanges(t *testing.T) {
	t.Parallel()
	a, b := `{"id":"a","prompt":"x"}`+"\n", `{"id":"b","prompt":"x"}`+"\n"
	d := newFixture(t, 0, file{text: "\n" + a}, file{text: b + b + a}, file{text: inputtest.Prompts(0, 1)},
		file{text: "\n\n" + b + a})
	d.submitted()
	want := "0 prompts/0.jsonl:2, " +
		"1 prompts/1.jsonl:1, 2 prompts/1.jsonl:2 = prompts/1.jsonl:1, 3 prompts/1.jsonl:3 = prompts/0.jsonl:2, " +
		"4 prompts/2.jsonl:1, 5 prompts/3.jsonl:3 = prompts/1.jsonl:1, 6 prompts/3.jsonl:4 = prompts/0.jsonl:2"
	if got := strings.Join(d.lines(), ", "); got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
}

// A line that is not a request takes no id: a corrected line after it is answered. A
// number is another id than its text.
func TestOnlyValidLinesOfTheSameTypeOfIDAreDuplicates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dialect dialect.Name
		lines   []string
		want    string // item=first, of duplicates
	}{
		"a value of a wrong type":  {dialect.Plain, []string{`{"id":"a","prompt":12}`, `{"id":"a","prompt":"x"}`}, ""},
		"broken JSON after the id": {dialect.Plain, []string{`{"id":"a","prompt":"x" oops`, `{"id":"a","prompt":"x"}`}, ""},
		"broken JSON before it":    {dialect.Plain, []string{`{"prompt":oops,"id":"a"}`, `{"id":"a","prompt":"x"}`}, ""},
		"a repeated name": {dialect.Plain, []string{`{"id":"a","prompt":"x","prompt":"y"}`, `{"id":"a","prompt":"x"}`},
			""},
		"invalid between valid ones": {dialect.Plain,
			[]string{`{"id":"a","prompt":"x"}`, `{"id":"a"}`, `{"id":"a","prompt":"x"}`}, "2=0"},
		"a number and its text": {dialect.Plain, []string{`{"id":1,"prompt":"x"}`, `{"id":"1","prompt":"x"}`,
			`{"prompt":"x","id":1}`, `{"prompt":"x","id":"1"}`}, "2=0 3=1"},
		"another model than the run's": {dialect.OpenAI, []string{
			`{"custom_id":"a","url":"/v1/chat/completions","body":{"model":"other","messages":[{}]}}`,
			`{"custom_id":"a","url":"/v1/chat/completions","body":{"model":"m","messages":[{}]}}`}, ""},
	} {
		d := newFixture(t, 0, file{text: strings.Join(c.lines, "\n") + "\n"})
		d.m.Dialect, d.m.ModelURI = string(c.dialect), "m"
		hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
		d.submitted()
		var got []string
		d.each(func(l input.Line) {
			if f := l.Duplicate; f != nil && !isInvalid(c.dialect, l.Bytes) {
				got = append(got, fmt.Sprintf("%d=%d", l.Place.Item, f.Line-1))
			}
		})
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func isInvalid(d dialect.Name, line []byte) bool {
	_, err := dialect.Parse(d, line)
	return err != nil
}

func TestFirstLineWithARequestIsTheOriginalOfAllOthers(t *testing.T) {
	t.Parallel()
	ask := func(id, prompt string) string { return fmt.Sprintf(`{"id":%q,"prompt":%q}`+"\n", id, prompt) }
	d := newFixture(t, 0, file{text: ask("1", "x") + ask("2", "y") + "[\n"},
		file{text: ask("1", "z") + ask("3", "z") + ask("4", "z") + `{ "prompt" : "x"}` + "\n"},
		file{text: ask("5", "y") + ask("2", "x") + "[\n"})
	d.m.Config.Dedupe = config.Dedupe{Enabled: true, Sampled: true}
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.submitted()
	want := "0 prompts/0.jsonl:1, 1 prompts/0.jsonl:2, 2 prompts/0.jsonl:3, " +
		"3 prompts/1.jsonl:1 = prompts/0.jsonl:1, 4 prompts/1.jsonl:2, 5 prompts/1.jsonl:3 ~ 4, 6 prompts/1.jsonl:4 ~ 0, " +
		"7 prompts/2.jsonl:1 ~ 1, 8 prompts/2.jsonl:2 = prompts/0.jsonl:2, 9 prompts/2.jsonl:3"
	if got := strings.Join(d.lines(), ", "); got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
}

func TestDedupeAppliesOnlyToIdenticalDeterministicRequests(t *testing.T) {
	t.Parallel()
	line := func(id int, body string) string {
		return fmt.Sprintf(`{"custom_id":"%d","url":"/v1/chat/completions","body":{"messages":[{}]%s}}`+"\n", id, body)
	}
	twice := func(body string) file { return file{text: line(1, body) + line(2, body)} }
	for name, c := range map[string]struct {
		file   file
		dedupe config.Dedupe
		want   bool
	}{
		"off":                           {twice(`,"temperature":0`), config.Dedupe{}, false},
		"the temperature is 0":          {twice(`,"temperature":0`), config.Dedupe{Enabled: true}, true},
		"no temperature":                {twice(``), config.Dedupe{Enabled: true}, false},
		"no temperature, but included":  {twice(``), config.Dedupe{Enabled: true, Sampled: true}, true},
		"several answers":               {twice(`,"temperature":0,"n":2`), config.Dedupe{Enabled: true}, false},
		"several answers, but included": {twice(`,"n":2`), config.Dedupe{Enabled: true, Sampled: true}, true},
		"another seed": {file{text: line(1, `,"seed":1`) + line(2, `,"seed":2`)},
			config.Dedupe{Enabled: true, Sampled: true}, false},
		"another model than the run's": {twice(`,"model":"other"`), config.Dedupe{Enabled: true, Sampled: true}, false},
	} {
		d := newFixture(t, 0, c.file)
		d.m.Dialect, d.m.Config.Dedupe = "openai", c.dedupe
		hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
		d.submitted()
		lines := d.lines()
		if len(lines) != 2 || strings.Contains(lines[1], "~ 0") != c.want || strings.Contains(lines[0], "~") {
			t.Errorf("%s: %v", name, lines)
		}
	}
}

// Each range is a file. Their lists are joined on two levels.
func TestHashListsOfManyRangesAreJoined(t *testing.T) {
	t.Parallel()
	const ranges = 75
	var files []file
	for k := range ranges {
		text := fmt.Sprintf(`{"id":"%d","prompt":"x"}`+"\n"+`{"id":"%d","prompt":"x"}`+"\n", k, k/2)
		if k%10 == 3 {
			text = inputtest.Prompts(k, 1)
		}
		files = append(files, file{text: text})
	}
	d := newFixture(t, 0, files...)
	d.submitted()
	p := d.plan()
	if len(p.IDs) > 14 || p.IDs[0].To < 64 {
		t.Errorf("%d lists: %v", len(p.IDs), p.IDs)
	}
	first := map[string]string{}
	lines := strings.Join(d.lines(), "\n") + "\n"
	for k, f := range files {
		for n, l := range strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") {
			at := fmt.Sprintf("prompts/%d.jsonl:%d", k, n+1)
			own, _, _ := strings.Cut(l, ",")
			want := at + "\n"
			if f, ok := first[own]; ok {
				want = at + " = " + f + "\n"
			} else {
				first[own] = at
			}
			if !strings.Contains(lines, " "+want) {
				t.Errorf("line %q is missing", want)
			}
		}
	}
}

// The range has more repeats than fit in memory, and more hashes than are sorted
// at once.
func TestRangeOfTinyLinesIsPlanned(t *testing.T) {
	t.Parallel()
	const n = 1<<19 + 1000
	d := newFixture(t, 1<<15, file{text: strings.Repeat(`{"id":1}`+"\n", n-1) + `{"id":2}` + "\n"})
	d.submitted()
	item := uint64(0)
	d.each(func(l input.Line) {
		repeats := item > 0 && item < n-1
		first := dialect.Place{File: "prompts/0.jsonl", Line: 1}
		if l.Place.Item != item || (l.Duplicate != nil) != repeats || repeats && *l.Duplicate != first {
			t.Errorf("item %d is item %d, and repeats %v", item, l.Place.Item, l.Duplicate)
		}
		item++
	})
	if item != n || d.plan().IDs[0].Count != 2 {
		t.Errorf("%d items, with %d ids", item, d.plan().IDs[0].Count)
	}
}

// Every read of the bucket is delayed.
func TestFindIDTakesSecondsWithManyRanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ranges = 300
		files := make([]file, ranges)
		for k := range files {
			files[k].text = fmt.Sprintf(`{"id":"%d"}`+"\n", k)
			if k%100 == 50 {
				files[k].text = `{"id":"0"}` + "\n" + `{"id":"0"}` + "\n"
			}
		}
		d := newFixture(t, 0, files...)
		d.submitted()
		slowDown(d, 20*time.Millisecond)
		x := input.NewIndex(d.Ports.Blobs, d.Ports.Docs)
		began := time.Now()
		for most, want := range map[int]string{9: "[0 50 51 151 152 252 253]", 4: "[0 50 51 151]", 1: "[0]"} {
			got, err := x.FindID(t.Context(), id, d.plan(), "0", most)
			if fmt.Sprint(got) != want || err != nil {
				t.Errorf("up to %d: %v, %v; want %s", most, got, err, want)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("FindID took %v", took)
		}
	})
}
