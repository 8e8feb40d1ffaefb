package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/fault"
)

const settableFile = `
schema_version = 1
[sampling]
temperature = 0.5
stop = ["a", "b"]
[request]
system = "be brief"
[request.extra]
top_a = 1
best_of = 2
[limits]
deadline = "1h"
`

func TestSettingsCountOverTheFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		file     string // that says the same
	}{
		"a number":                 {[]string{"sampling.max_tokens=800"}, "sampling.max_tokens = 800"},
		"spaces around":            {[]string{" sampling.max_tokens = 800 "}, "sampling.max_tokens = 800"},
		"text without quotes":      {[]string{"name=nightly run"}, `name = "nightly run"`},
		"text in quotes":           {[]string{`name="a = \"b\""`}, `name = "a = \"b\""`},
		"text with a sign of TOML": {[]string{`name=a "#1"`}, `name = "a \"#1\""`},
		"the later of two":         {[]string{"sampling.top_k=1", "sampling.top_k=2"}, "sampling.top_k = 2"},
		"a list replaces the list": {[]string{`sampling.stop=["c"]`}, `sampling.stop = ["c"]`},
		"a duration":               {[]string{"limits.deadline=90m"}, `limits.deadline = "1h30m"`},
		"a table without a file's": {[]string{"dedupe.enabled=true"}, "dedupe.enabled = true"},
		"two keys of a table": {[]string{"sampling.top_k=1", "sampling.top_p=0.5"},
			"sampling.top_k = 1\nsampling.top_p = 0.5"},
		"a whole table":             {[]string{"sampling={top_k=1, top_p=0.5}"}, "sampling.top_k = 1\nsampling.top_p = 0.5"},
		"a name with a dash":        {[]string{"request.headers.X-Team=a"}, `request.headers.X-Team = "a"`},
		"a name in quotes":          {[]string{`request.headers."X-Team"=a`}, `request.headers.X-Team = "a"`},
		"a member beside the files": {[]string{"request.extra.min_tokens=3"}, "request.extra.min_tokens = 3"},
		"nothing":                   {nil, ""},
	} {
		base, err := config.ParseRun("x.toml", []byte(settableFile))
		if err != nil {
			t.Fatal(err)
		}
		before, _ := json.Marshal(base)
		got, err := base.Set(c.settings)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := config.ParseRun("x.toml", []byte(overwrite(settableFile, c.file)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the config differs from that of a file that says the same:\n%s", name, diff)
		}
		if after, _ := json.Marshal(base); string(after) != string(before) {
			t.Errorf("%s: the config that the settings are written over has changed to\n%s", name, after)
		}
	}
}

// overwrite returns a file with lines of dotted keys, in the tables of which keys of the
// same name are left out.
func overwrite(file, keys string) string {
	tables := map[string][]string{}
	for line := range strings.Lines(keys) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		table, name := "", key
		if i := strings.LastIndexByte(key, '.'); i >= 0 {
			table, name = key[:i], key[i+1:]
		}
		tables[table] = append(tables[table], name+" = "+value)
	}
	var out strings.Builder
	table := ""
	write := func() {
		for _, line := range tables[table] {
			out.WriteString(line + "\n")
		}
		delete(tables, table)
	}
	write()
	for line := range strings.Lines(file) {
		if head, ok := strings.CutPrefix(strings.TrimSpace(line), "["); ok {
			table = strings.TrimSuffix(head, "]")
			out.WriteString(line)
			write()
			continue
		}
		name, _, _ := strings.Cut(line, " = ")
		if !strings.Contains("\n"+keys, "\n"+strings.TrimPrefix(table+"."+name, ".")+" = ") {
			out.WriteString(line)
		}
	}
	for table := range tables {
		if table != "" {
			out.WriteString("[" + table + "]\n" + strings.Join(tables[table], "\n") + "\n")
		}
	}
	return out.String()
}

func TestSettingsAreCheckedAsTheFileIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		want     string
	}{
		"no value":       {[]string{"sampling.top_k"}, "--set: sampling.top_k: is not a setting: write KEY=VALUE"},
		"an empty value": {[]string{"name="}, "write KEY=VALUE"},
		"no key":         {[]string{"=1"}, "write KEY=VALUE"},
		"an unknown key": {[]string{"sampling.max_token=1"},
			"--set: sampling.max_token: unknown key; did you mean max_tokens?"},
		"a wrong type": {[]string{"sampling.top_k=many"},
			`--set: sampling.top_k: must be a whole number, is the string "many"`},
		"a wrong value":    {[]string{"sampling.top_p=2"}, "--set: sampling.top_p: must be"},
		"two problems":     {[]string{"sampling.top_p=2", "sampling.top_k=many"}, "sampling.top_k: must be a whole number"},
		"no name of a key": {[]string{"sam pling=1"}, "--set: sam pling: is not the name of a key"},
		"two lines":        {[]string{"name=a\nkind=\"train\""}, "must be one line"},
		"a long value":     {[]string{"name=" + strings.Repeat("x", 1<<17)}, "must be one line"},
		"a deep key":       {[]string{strings.Repeat("a.", 40) + "a=1"}, "--set: "},
		"a value and a table": {[]string{"sampling=1", "sampling.top_k=1"},
			"sets a part of a key that an earlier setting gave a value of another type"},
	} {
		base := config.DefaultRun()
		_, err := base.Set(c.settings)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestMaskedSettingsHaveNoValueOfARequest(t *testing.T) {
	t.Parallel()
	given := []string{"sampling.top_k=1", `request.headers.X-Key="secret"`, ` request = {system="secret"}`}
	want := []string{"sampling.top_k=1", "request.headers.X-Key=(left out)", "request=(left out)"}
	if diff := cmp.Diff(want, config.MaskSettings(given)); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(given[1], "secret") {
		t.Error("the settings themselves have changed")
	}
}

func TestSettingKeysNameWhatIsSet(t *testing.T) {
	t.Parallel()
	got := config.SettingKeys([]string{"sampling.top_k=1", "sampling={top_p=0.5, stop=[\"a\"]}", "name=a", "broken"})
	want := []string{"name", "sampling.stop", "sampling.top_k", "sampling.top_p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
