package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestValuesAreWhatAConfigSays(t *testing.T) {
	t.Parallel()
	r, err := ParseRun("x.toml", []byte(`schema_version = 1
[sampling]
temperature = 0.0
stop = ["\n"]
[limits]
failures = 3
[request]
headers = { a = "secret" }
extra = { x = 1 }
[[grade]]
name = "g"
kind = "exact"
expected = "answer"
`))
	if err != nil {
		t.Fatal(err)
	}
	values, err := r.Values()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Value{}
	for _, v := range values {
		got[v.Key] = v
	}
	for key, want := range map[string]Value{
		"sampling.temperature": {Text: "0"}, "sampling.stop": {Text: `["\n"]`}, "limits.failures": {Text: "3", Default: true},
		"limits.grace": {Text: `"10s"`, Default: true}, "request.headers.a": {Text: "***"}, "request.extra.x": {Text: "1"},
	} {
		want.Key = key
		if got[key] != want {
			t.Errorf("%s is %+v, want %+v", key, got[key], want)
		}
	}
	for _, key := range []string{"sampling.top_p", "limits.deadline", "limits.fail_fast", "name"} {
		if v, listed := got[key]; listed {
			t.Errorf("%+v says nothing", v)
		}
	}
	if v := got["grade"]; v.Text == "" || v.Default {
		t.Errorf("the graders are %+v", v)
	}
}

// Headers and queries may hold keys, in whichever request they are.
func TestValuesConcealHeadersAndQueriesAtEveryDepth(t *testing.T) {
	t.Parallel()
	request := &Request{Headers: map[string]string{"Authorization": "secret"}, Query: map[string]string{"key": "secret"},
		Extra: map[string]any{"top_k": 7}}
	r := Run{Request: request, Reflection: &Reflection{Request: request}, Grades: []Grade{{Name: "g", Request: request}}}
	texts, err := textsOf(r)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprint(texts)
	if strings.Contains(all, "secret") || strings.Count(all, concealed) != 6 || strings.Count(all, "Authorization") != 3 ||
		!strings.Contains(texts["grade"], `"top_k":7`) {
		t.Errorf("%v", texts)
	}
}

func TestKeysOfAFileAreThoseThatItNames(t *testing.T) {
	t.Parallel()
	got := FileKeys([]byte("name = \"x\"\n[sampling]\nmax_tokens = 3\n[request.extra]\na = {b = 1}\n"))
	if want := []string{"name", "request.extra.a.b", "sampling.max_tokens"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := FileKeys([]byte("= x")); got != nil {
		t.Errorf("text that is not TOML has the keys %v", got)
	}
}
