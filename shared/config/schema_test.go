package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"rollout/shared/jsonschema"
)

var update = flag.Bool("update", false, "write examples/schemas and key_texts.json")

const schemaFolder = "../../examples/schemas"

// textRow matches a row of the reference's tables: a key, its type, default and meaning.
var textRow = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.]+)` \\| ([a-z ]+) \\| (.*?) ?\\| (.*?) ?\\|$")

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// TestDescriptionsOfKeysAreThoseOfTheReference holds the texts of the schemas to the
// document that users read.
func TestDescriptionsOfKeysAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	texts := map[string]keyText{}
	plain := func(s string) string { return strings.ReplaceAll(link.ReplaceAllString(s, "$1"), "`", "") }
	for _, m := range textRow.FindAllStringSubmatch(readDocument(t, reference), -1) {
		if _, listed := texts[m[1]]; !listed {
			texts[m[1]] = keyText{plain(m[4]), plain(m[3])}
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(texts); err != nil {
		t.Fatal(err)
	}
	golden(t, "key_texts.json", b.Bytes())
}

func TestCommittedSchemasAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	for _, name := range SchemaNames() {
		golden(t, filepath.Join(schemaFolder, name+".json"), schemaOf(t, name))
	}
	if _, err := Schema("runs"); err == nil {
		t.Error("there is a schema of runs")
	}
}

func golden(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v): run go test ./shared/config -update twice", path, err)
	}
}

func schemaOf(t *testing.T, name string) []byte {
	t.Helper()
	b, err := Schema(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// defaultsOf returns a pointer to the defaults of a config, and its check.
func defaultsOf(name string) (any, func(*checker)) {
	switch name {
	case "run":
		r := DefaultRun()
		return &r, func(c *checker) { r.check(c, "") }
	case "deployment":
		d := DefaultDeployment()
		return &d, func(c *checker) { d.derive(); d.check(c) }
	case "infer":
		f := DefaultInfer()
		return &f, func(c *checker) { f.check(c) }
	case "plugin":
		m := DefaultPluginManifest()
		return &m, func(c *checker) { m.check(c) }
	}
	f := DefaultTrain()
	return &f, func(c *checker) { f.check(c) }
}

// parseAs parses a config of that name.
func parseAs(name string, src []byte) error {
	var err error
	switch name {
	case "run":
		_, err = ParseRun("x.toml", src)
	case "deployment":
		_, err = ParseDeployment("x.toml", src)
	case "infer":
		_, err = ParseInfer("x.toml", src)
	case "plugin":
		_, err = ParsePlugin("x.toml", src)
	default:
		_, err = ParseTrain("x.toml", src)
	}
	return err
}

// leaf is a key of a schema that is no table.
type leaf struct {
	path   string // with [] behind lists of tables, and NAME for names
	schema map[string]any
}

// leaves returns all keys of a schema, tables included.
func leaves(s map[string]any, at string) (out []leaf) {
	if either, ok := s["anyOf"].([]any); ok {
		s = either[1].(map[string]any)
	}
	properties, _ := s["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		p := properties[key].(map[string]any)
		path := join(at, key)
		out = append(out, leaf{path, p})
		switch items, _ := p["items"].(map[string]any); {
		case items["type"] == "object":
			out = append(out, leaves(items, path+"[]")...)
		case p["type"] == "object" && p["properties"] == nil:
			if values, ok := p["additionalProperties"].(map[string]any); ok {
				out = append(out, leaves(values, join(path, "NAME"))...)
			}
		default:
			out = append(out, leaves(p, path)...)
		}
	}
	return out
}

func decodedSchema(t *testing.T, name string) map[string]any {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal(schemaOf(t, name), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// treeOf returns the TOML tree that has x at the path, over the tree base.
func treeOf(base map[string]any, path string, x any) map[string]any {
	tree := base
	parts := strings.Split(path, ".")
	for i, part := range parts {
		key, list := strings.CutSuffix(part, "[]")
		if i == len(parts)-1 {
			tree[key] = x
			break
		}
		next, ok := tree[key].(map[string]any)
		if l, is := tree[key].([]map[string]any); is {
			next, ok = l[0], true
		}
		if !ok {
			next = map[string]any{}
		}
		tree[key] = next
		if list {
			tree[key] = []map[string]any{next}
		}
		tree = next
	}
	return base
}

// problemsAt returns the problems that the parser and the checks have with the key.
func problemsAt(name string, tree map[string]any, path string) (out []string) {
	into, check := defaultsOf(name)
	c := newChecker("", nil)
	if r, ok := into.(interface {
		normalize(*checker, map[string]any)
	}); ok {
		r.normalize(c, tree)
	}
	v := reflect.ValueOf(into).Elem()
	(&binder{checker: c, known: pathsOf(v.Type(), "")}).table(v, tree, "")
	check(c)
	field := strings.ReplaceAll(path, "[]", "[0]")
	for _, p := range c.problems {
		if p.Field == field || strings.HasPrefix(p.Field, field+"[") {
			out = append(out, p.Message)
		}
	}
	return out
}

// TestSchemasAndParserKnowTheSameKeys asks the parser about every key of the schemas, and
// the schemas about every key of the parser.
func TestSchemasAndParserKnowTheSameKeys(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	count := 0
	for _, name := range SchemaNames() {
		for _, l := range leaves(decodedSchema(t, name), "") {
			known[strings.ReplaceAll(l.path, "[]", "")] = true
			known[name+"."+l.path] = true // as the reference names the keys of a manifest
			count++
			for _, p := range problemsAt(name, treeOf(map[string]any{}, l.path, time.Time{}), l.path) {
				if strings.Contains(p, "unknown key") {
					t.Errorf("%s: the parser does not know %s: %s", name, l.path, p)
				}
			}
			if l.schema["type"] != "object" && l.schema["description"] == nil && !strings.HasSuffix(l.path, "dataset.type") {
				t.Errorf("%s: %s has no description", name, l.path)
			}
		}
	}
	for _, s := range allSettings() {
		if !known[s.key] {
			t.Errorf("the schemas lack %s", s.key)
		}
	}
	if count < 400 {
		t.Errorf("the schemas have only %d keys", count)
	}
	if problemsAt("run", map[string]any{"shard": map[string]any{"item": int64(1)}}, "shard.item") == nil {
		t.Error("this test finds no unknown keys")
	}
}

// baseOf returns a config in which a key of the path may stand.
func baseOf(name, path string) map[string]any {
	base := map[string]any{"schema_version": int64(1)}
	first, _, _ := strings.Cut(path, ".")
	first = strings.TrimSuffix(first, "[]")
	switch {
	case strings.HasPrefix(path, "algorithm."):
		kind := strings.Split(path, ".")[1]
		if name == "run" {
			base["kind"] = KindTrain
		}
		if kind != AlgorithmRM {
			kind = AlgorithmSFT
		}
		base["algorithm"] = map[string]any{"kind": kind, kind: map[string]any{}}
	case first == "snapshot" && name == "run":
		base["kind"] = KindTrain
	case slices.Contains([]string{"rollout", "mission", "decode", "answer", "runner", "selection", "reflection", "gate"},
		first):
		base["kind"] = KindRollout
		base["reflection"] = map[string]any{}
	case first == "pipeline":
		base["pipeline"] = map[string]any{"stage": StageLatent}
	case first == "design", first == "variant":
		base["kind"] = KindTrials
	case first == "pruning", strings.HasPrefix(path, "defaults.pruning."):
		rule := map[string]string{"below": PruneFixed, "eta": PruneHalving}[path[strings.LastIndexByte(path, '.')+1:]]
		table := map[string]any{"kind": KindTrials, "pruning": map[string]any{"rule": cmp.Or(rule, PruneRace)},
			"variant": []map[string]any{{"name": "v"}, {"name": "w"}},
			"grade":   []map[string]any{{"name": "g", "kind": GradeExact, "expected": "x"}}}
		if first == "pruning" {
			maps.Copy(base, table)
		} else {
			base["defaults"] = table
		}
	case strings.Contains(path, "grade[]"):
		kind := GradeJudge
		if strings.Contains(path, "tolerance") {
			kind = GradeNumeric
		}
		grade := path[:strings.Index(path, "grade[]")] + "grade[]."
		treeOf(treeOf(base, grade+"kind", kind), grade+"extract", "x")
	case ofMachines(path):
		base["cloud"] = map[string]any{"provider": "aws", "region": "us-east-1", "s3": map[string]any{"bucket": "acme"}}
	case first == "cloud":
		base["cloud"] = map[string]any{"provider": "aws"}
		if strings.Contains(path, "gcs") || strings.Contains(path, "pubsub") || strings.Contains(path, "firestore") {
			base["cloud"] = map[string]any{"provider": "gcp"}
		}
	}
	return base
}

// ofMachines reports whether a path is of a key of PoolMachines, which only clouds have.
func ofMachines(path string) bool {
	key, ok := strings.CutPrefix(path, "pool[].")
	key, _, _ = strings.Cut(key, "[")
	return ok && slices.ContainsFunc(fieldsOf(reflect.TypeFor[PoolMachines]()),
		func(f keyField) bool { return f.key == key })
}

// together are values that the checks accept only beside others, and keys of shared tables
// that the checks refuse in one place: no schema says so.
var together = map[string]bool{
	"worker.max_in_flight 1": true, "gate.tickets 2": true, "gate.resamples 1": true, "gate.share 0.6": true,
	"pool[].machines cloud-run": true, "pool[].provisioning": true, // as the provider can
	"pruning.rule fixed":    true,                                   // it needs a bound
	"reflection.sampling.n": true, "reflection.sampling.seed": true, // of a table that reflections share
	"variant[].sampling.n": true, "variant[].sampling.seed": true, "variant[].sampling.logprobs": true, // and variants
}

// TestBoundsAndChoicesOfSchemasAreThoseOfTheChecks asks the checks about every bound and
// every choice of the schemas: the bound is accepted, and what is beyond it is refused.
// Numbers and texts without one are tried with extreme values.
func TestBoundsAndChoicesOfSchemasAreThoseOfTheChecks(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, name := range SchemaNames() {
		for _, l := range leaves(decodedSchema(t, name), "") {
			if strings.HasSuffix(l.path, "dataset.type") { // becomes dataset.kind
				continue
			}
			try := func(x any, want bool) {
				t.Helper()
				tried++
				if got := problemsAt(name, treeOf(baseOf(name, l.path), l.path, x), l.path); (got == nil) != want &&
					!(want && (together[fmt.Sprint(l.path, " ", x)] || together[l.path])) {
					t.Errorf("%s: %s = %v: the checks say %q, the schema %v", name, l.path, x, got, want)
				}
			}
			if enum, ok := l.schema["enum"].([]any); ok {
				for _, x := range enum {
					if f, number := x.(float64); number {
						x = int64(f)
					}
					try(x, true)
				}
				if l.schema["type"] == "string" {
					try("zz", false)
				}
				continue
			}
			number := func(x float64) any {
				if l.schema["type"] == "integer" {
					return int64(x)
				}
				return x
			}
			switch l.schema["type"] {
			case "integer", "number":
				step := 1.0
				if l.schema["type"] == "number" {
					step = 1e-3
				}
				edge := func(key string, outside float64, without float64) {
					if x, ok := l.schema[key].(float64); ok {
						try(number(x), true)
						try(number(x+outside*max(1, x)), false)
					} else if x, ok := l.schema["exclusive"+strings.ToUpper(key[:1])+key[1:]].(float64); ok {
						try(number(x), false)
						try(number(x-outside), true)
					} else {
						try(number(without), true)
					}
				}
				edge("minimum", -step, -1e18)
				edge("maximum", step, 1e18)
			case "string":
				if n, ok := l.schema["maxLength"].(float64); ok && n < 10_000 && l.schema["pattern"] == nil {
					try(strings.Repeat("x", int(n)+1), false)
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("tried only %d values", tried)
	}
}

// asJSON returns a TOML source as JSON.
func asJSON(t *testing.T, src []byte) string {
	t.Helper()
	var tree map[string]any
	if err := toml.Unmarshal(src, &tree); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestExamplesNameTheirSchemaAndAreAccepted reads every example as editors do.
func TestExamplesNameTheirSchemaAndAreAccepted(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/*.toml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		src := []byte(readDocument(t, file))
		first, _, _ := strings.Cut(string(src), "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(first, "#:schema schemas/"), ".json")
		if !slices.Contains(SchemaNames(), name) {
			t.Errorf("%s begins with %q, want #:schema schemas/NAME.json", file, first)
			continue
		}
		if !compiled(t, name).Accepts(asJSON(t, src)) {
			t.Errorf("the schema of %s refuses %s", name, file)
		}
		if err := parseAs(name, src); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func compiled(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.Compile(string(schemaOf(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemasAcceptTheConfigsOfTheDocuments holds the schemas to spellings that only the
// parser's shorthands know.
func TestSchemasAcceptTheConfigsOfTheDocuments(t *testing.T) {
	t.Parallel()
	names := map[string]string{"prompts/x.toml": "run", "D/rollout.toml": "deployment", "rollout.toml": "deployment",
		"batch.toml": "infer", "sft.toml": "train"}
	found := 0
	for _, path := range []string{reference, "../../infra/aws/README.md", "../../gpuworker/README.md"} {
		for _, block := range strings.Split(readDocument(t, path), "```toml\n")[1:] {
			src, _, _ := strings.Cut(block, "```")
			head, _, _ := strings.Cut(strings.TrimPrefix(src, "# "), "\n")
			if name := names[head]; name != "" {
				found++
				if !compiled(t, name).Accepts(asJSON(t, []byte(src))) {
					t.Errorf("%s: the schema of %s refuses\n%s", path, name, src)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d configs", found)
	}
}

func TestSchemasRefuseMistakes(t *testing.T) {
	t.Parallel()
	const run, deployment = "schema_version = 1\n", "schema_version = 1\n"
	for name, c := range map[string]struct{ schema, src string }{
		"no version":           {"run", "kind = \"batch\""},
		"a newer version":      {"run", "schema_version = 2"},
		"an unknown key":       {"run", run + "[sampling]\ntemprature = 1"},
		"an unknown table":     {"run", run + "[samplings]"},
		"a wrong type":         {"run", run + "[shard]\nitems = \"256\""},
		"above a bound":        {"run", run + "[sampling]\ntemperature = 2.1"},
		"an excluded bound":    {"run", run + "[sampling]\ntop_p = 0"},
		"below a bound":        {"run", run + "[shard]\nitems = -1"},
		"an unknown kind":      {"run", run + "kind = \"batches\""},
		"no duration":          {"run", run + "[limits]\ngrace = \"10\""},
		"a negative duration":  {"run", run + "[limits]\ngrace = \"-10s\""},
		"a grader of no kind":  {"run", run + "[[grade]]\nname = \"a\""},
		"too many stops":       {"run", run + "[sampling]\nstop = [" + strings.Repeat(`"x",`, 17) + "]"},
		"an empty stop":        {"run", run + "[sampling]\nstop = [\"\"]"},
		"a rollout as default": {"deployment", deployment + "[defaults]\nkind = \"rollout\""},
		"a pool of no model":   {"deployment", deployment + "[[pool]]\nname = \"a\""},
		"a name in capitals":   {"deployment", deployment + "[[pool]]\nname = \"A\"\nmodel = \"m\""},
		"an unknown cloud":     {"deployment", deployment + "[cloud]\nprovider = \"azure\"\nregion = \"x\""},
		"an engine's mistake":  {"deployment", deployment + "[engines.a]\nstream = \"sometimes\""},
		"a body model":         {"deployment", deployment + "[engine]\nbody_model = \"override\""},
		"no output":            {"infer", "[model]\nuri = \"m\"\n[input]\nglob = \"*\""},
		"a rate of 0":          {"train", "[algorithm.sft]\nbase_model = \"rollout/tiny\"\n[algorithm.sft.optimizer]\nlr=0"},
	} {
		if compiled(t, c.schema).Accepts(asJSON(t, []byte(c.src))) {
			t.Errorf("%s: the schema accepts\n%s", name, c.src)
		}
		var problems Problems
		if err := parseAs(c.schema, []byte(c.src)); !errors.As(err, &problems) {
			t.Errorf("%s: the parser says %v", name, err)
		}
	}
}
