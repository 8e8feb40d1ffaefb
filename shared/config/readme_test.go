package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reference is the document that lists every config key.
const reference = "../../examples/README.md"

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestConfigsInReadmesAreValid parses the configs that users copy from the documents.
func TestConfigsInReadmesAreValid(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for _, path := range []string{reference, "../../infra/aws/README.md", "../../infra/gcp/README.md",
		"../../gpuworker/README.md"} {
		for _, block := range strings.Split(readDocument(t, path), "```toml\n")[1:] {
			src, _, _ := strings.Cut(block, "```")
			name, _, _ := strings.Cut(strings.TrimPrefix(src, "# "), "\n")
			var err error
			switch name {
			case "prompts/x.toml":
				_, err = ParseRun(name, []byte(src))
			case "D/rollout.toml", "rollout.toml":
				_, err = ParseDeployment(name, []byte(src))
			case "batch.toml":
				_, err = ParseInfer(name, []byte(src))
			case "sft.toml":
				_, err = ParseTrain(name, []byte(src))
			case PluginFile:
				_, err = ParsePlugin(name, []byte(src))
			default:
				t.Errorf("%s: a block begins with %q, want the name of a config file", path, name)
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			found[name]++
		}
	}
	for _, name := range []string{"prompts/x.toml", "D/rollout.toml", "rollout.toml", "batch.toml", "sft.toml",
		PluginFile} {
		if found[name] == 0 {
			t.Errorf("no document has an example of %s", name)
		}
	}
}

// keyRow matches a row of the reference's tables: a key, its type, its default.
var keyRow = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.]+)` \\| ([a-z ]+) \\| (.*?) ?\\| ")

// keyDoc is the type and default of a key in the reference.
type keyDoc struct{ typ, fallback string }

func readReference(t *testing.T) map[string]keyDoc {
	t.Helper()
	keys := map[string]keyDoc{}
	for _, m := range keyRow.FindAllStringSubmatch(readDocument(t, reference), -1) {
		if _, listed := keys[m[1]]; !listed { // the first table is the most detailed one
			keys[m[1]] = keyDoc{m[2], m[3]}
		}
	}
	return keys
}

// referenceKey returns a key as the reference writes it. The reference lists the
// settings that both kinds of training share once, as algorithm.KIND, and those of all
// engines as engine.
func referenceKey(listed map[string]keyDoc, key string) string {
	for _, kind := range []string{AlgorithmSFT, AlgorithmRM} {
		if rest, ok := strings.CutPrefix(key, "engines.NAME."); ok { // listed once, as those of [engine]
			return "engine." + rest
		}
		if rest, ok := strings.CutPrefix(key, "algorithm."+kind+"."); ok {
			if common := "algorithm.KIND." + rest; listed[common].typ != "" {
				return common
			}
		}
	}
	return key
}

// setting is one key of a config file that holds a value, and its default.
type setting struct {
	key   string
	value reflect.Value
}

// settings returns every key of v that holds a value rather than a table.
func settings(v reflect.Value, at string) (out []setting) {
	for _, field := range fieldsOf(v.Type()) {
		key, f := join(at, field.key), v.FieldByIndex(field.index)
		if f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct {
			e := reflect.New(f.Type().Elem())
			if d, ok := e.Interface().(interface{ setDefaults() }); ok && f.IsNil() {
				d.setDefaults()
				f = e
			}
			f = f.Elem()
		}
		switch {
		case !f.IsValid(): // an optional table that is not set
		case f.Kind() == reflect.Struct:
			out = append(out, settings(f, key)...)
		case f.Kind() == reflect.Map:
			out = append(out, setting{key, f})
			if f.Type().Elem().Kind() != reflect.Struct {
				continue
			}
			e := reflect.New(f.Type().Elem())
			if d, ok := e.Interface().(interface{ setDefaults() }); ok {
				d.setDefaults()
			}
			out = append(out, settings(e.Elem(), key+".NAME")...)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			out = append(out, setting{key, f})
			out = append(out, settings(reflect.New(f.Type().Elem()).Elem(), key)...)
		default:
			out = append(out, setting{key, f})
		}
	}
	return out
}

// allSettings returns the keys of all four files, with their defaults.
func allSettings() (out []setting) {
	run, deployment, cloud := DefaultRun(), DefaultDeployment(), Cloud{Name: "rollout", Fleet: DefaultFleet()}
	train := DefaultTrain()
	train.Algorithm.SFT, train.Algorithm.RM = DefaultSFT(), DefaultRM()
	deployment.Cloud = cloud
	run.Request = &Request{}
	rollout, runner, selection := DefaultRollout(), DefaultRunner(), DefaultSelection()
	run.Rollout, run.Answer, run.Runner, run.Selection = &rollout, &Answer{}, &runner, &selection
	reflection, gate := DefaultReflection(), DefaultGate()
	run.Reflection, run.Gate = &reflection, &gate
	design := DefaultDesign()
	pruning := DefaultPruning()
	run.Design, run.Pruning = &design, &pruning
	for _, file := range []any{run, deployment, DefaultInfer(), train} {
		out = append(out, settings(reflect.ValueOf(file), "")...)
	}
	out = append(out, settings(reflect.ValueOf(DefaultPluginManifest()), "plugin")...)
	return slices.DeleteFunc(out, func(s setting) bool { return strings.HasPrefix(s.key, "defaults.") })
}

// typeName returns the reference's name of a value's type.
func typeName(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[Duration]() {
		return "duration"
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[Priority]() {
		return "string or number"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Map:
		return "table"
	case reflect.Slice:
		return map[reflect.Kind]string{reflect.String: "list of strings", reflect.Float64: "list of numbers",
			reflect.Struct: "list of tables"}[t.Elem().Kind()]
	}
	return t.String()
}

// hasDefault reports whether the text of the reference begins with the value.
func hasDefault(text string, v reflect.Value) bool {
	text = strings.ReplaceAll(text, "`", "")
	first, _, _ := strings.Cut(strings.Trim(text, `"`), `"`)
	first = strings.ReplaceAll(first, `\n`, "\n")
	switch x := v.Interface().(type) {
	case Duration:
		var d Duration
		return d.UnmarshalText([]byte(first)) == nil && d == x
	case string:
		return first == x
	case float64:
		n, err := strconv.ParseFloat(first, 64)
		return err == nil && n == x
	case []string:
		return text == `["`+strings.Join(x, `", "`)+`"]`
	case []float64:
		return text == strings.ReplaceAll(fmt.Sprint(x), " ", ", ")
	}
	return text == fmt.Sprint(v.Interface())
}

func TestReferenceListsEveryConfigKey(t *testing.T) {
	t.Parallel()
	listed := readReference(t)
	known := map[string]bool{
		"algorithm": true,
		"snapshot":  true,
		"defaults":  true,

		"reflection.sampling": true,
		"reflection.request":  true,
		"variant.sampling":    true,
	} // tables that have rows themselves
	for _, s := range allSettings() {
		key := referenceKey(listed, s.key)
		known[key] = true
		doc, ok := listed[key]
		switch {
		case !ok:
			t.Errorf("%s does not list %s", reference, s.key)
		case doc.typ != typeName(s.value):
			t.Errorf("%s says that the type of %s is %s, want %s", reference, key, doc.typ, typeName(s.value))
		case !s.value.IsZero() && !strings.HasPrefix(doc.fallback, "required") && !hasDefault(doc.fallback, s.value):
			t.Errorf("%s says that the default of %s is %s, want %v", reference, key, doc.fallback, s.value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if !known[key] {
			t.Errorf("%s lists %s, which is not a config key", reference, key)
		}
	}
	if len(known) < 80 {
		t.Errorf("found only %d keys, want at least 80", len(known))
	}
}
