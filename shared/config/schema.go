package config

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rollout/shared/fault"
)

// SchemaNames lists the configs that have a JSON Schema: those of a run, of a deployment,
// of `rollout infer batch`, of `rollout train`, and the manifest of a plugin.
func SchemaNames() []string { return []string{"run", "deployment", "infer", "train", "plugin"} }

// Schema returns the JSON Schema (draft 2020-12) of a config as indented JSON. Editors
// complete and check keys by it. It accepts all that the parser accepts; what depends on
// several keys is checked by the parser alone. Another name is Invalid.
func Schema(name string) ([]byte, error) {
	var file any
	at := ""
	switch name {
	case "run":
		file = DefaultRun()
	case "deployment":
		d := DefaultDeployment()
		d.Cloud = Cloud{Name: "rollout", Fleet: DefaultFleet()}
		file = d
	case "infer":
		file = DefaultInfer()
	case "train":
		file = DefaultTrain()
	case "plugin":
		file, at = DefaultPluginManifest(), "plugin" // the reference's name of the file
	default:
		return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there is no schema of %s", quote(name)),
			Remedy: "name one of " + strings.Join(SchemaNames(), ", ")}
	}
	texts, err := keyTexts()
	if err != nil {
		return nil, err
	}
	root := (&schemaWriter{texts: texts}).object(reflect.ValueOf(file), at)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "rollout: the " + map[string]string{"run": "config of a run", "deployment": "config of a deployment",
		"infer": "config of a batch of rollout infer batch", "train": "config of a training of rollout train",
		"plugin": "manifest of a plugin"}[name]
	if required := map[string][]string{"run": {"schema_version"}, "deployment": {"schema_version"},
		"infer": {"model", "input", "output"}, "train": {"algorithm"}}[name]; required != nil {
		root["required"] = required
	}
	b, err := json.MarshalIndent(root, "", "  ")
	return append(b, '\n'), err
}

// keyText is what examples/README.md says about a key: a test holds the two together.
type keyText struct {
	Text    string `json:"text"`
	Default string `json:"default,omitempty"`
}

//go:embed key_texts.json
var keyTextsFile []byte

func keyTexts() (texts map[string]keyText, err error) {
	err = json.Unmarshal(keyTextsFile, &texts)
	return texts, fault.WithKind(fault.Internal, err, "read the descriptions of keys")
}

// schemaWriter makes schemas of config types.
type schemaWriter struct{ texts map[string]keyText }

// object returns the schema of a table with the keys of the struct v, whose values are the
// defaults; at is its path, with NAME for the names of tables.
func (w *schemaWriter) object(v reflect.Value, at string) map[string]any {
	properties := map[string]any{}
	for _, f := range fieldsOf(v.Type()) {
		path := join(at, f.key)
		if at == "defaults" && slices.Contains(ofOneKind, f.key) {
			continue
		}
		rule := ruleOf(v.Type(), f, path)
		s := w.value(v.FieldByIndex(f.index), path, rule)
		w.describe(s, path)
		properties[f.key] = s
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if r := requiredKeys[v.Type()]; r != nil && at != "" {
		out["required"] = r
	}
	if v.Type() == reflect.TypeFor[Dataset]() { // an older name of kind
		properties["type"] = properties["kind"]
	}
	return out
}

// ofOneKind are the tables that only rollouts, trials and trainings have: [defaults] is of batches.
var ofOneKind = []string{"rollout", "mission", "decode", "answer", "runner", "selection", "reflection", "gate",
	"design", "variant",
	"algorithm", "snapshot"}

// value returns the schema of a value whose default is v.
func (w *schemaWriter) value(v reflect.Value, path string, rule schemaRule) map[string]any {
	out := map[string]any{}
	if v.Type() == reflect.TypeFor[Duration]() {
		out["type"], out["pattern"] = "string", durationPattern
		if d := v.Interface().(Duration); !rule.noDefault && (d != 0 || rule.zero) {
			out["default"] = shortDuration(d)
		}
		return out
	}
	switch v.Kind() {
	case reflect.Pointer:
		e := reflect.New(v.Type().Elem())
		if d, ok := e.Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		if e.Elem().Kind() != reflect.Struct {
			rule.noDefault = true // the server chooses, or the text of the key says what nil means
		}
		return w.value(e.Elem(), path, rule)
	case reflect.Struct:
		out = w.object(v, path)
	case reflect.Slice:
		out["type"] = "array"
		out["items"] = w.value(reflect.New(v.Type().Elem()).Elem(), path, rule.element())
		if v.Len() > 0 && !rule.noDefault {
			out["default"] = v.Interface()
		}
		rule.list(out)
	case reflect.Map:
		out["type"] = "object"
		e := reflect.New(v.Type().Elem())
		if d, ok := e.Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		if e.Elem().Kind() != reflect.Interface {
			out["additionalProperties"] = w.value(e.Elem(), join(path, "NAME"), schemaRule{noDefault: true})
		}
	case reflect.String:
		out["type"] = "string"
		rule.text(out)
		if s := v.String(); s != "" && !rule.noDefault {
			out["default"] = s
		}
	case reflect.Bool:
		out["type"] = "boolean"
		if !rule.noDefault {
			out["default"] = v.Bool()
		}
		rule.choices(out)
	case reflect.Int, reflect.Int64:
		out["type"] = "integer"
		rule.number(out)
		if n := v.Int(); !rule.noDefault && (n != 0 || rule.zero) {
			out["default"] = n
		}
	case reflect.Float64:
		out["type"] = "number"
		rule.number(out)
		if x := v.Float(); !rule.noDefault && (x != 0 || rule.zero) {
			out["default"] = x
		}
	}
	if rule.short != nil {
		return map[string]any{"anyOf": []any{rule.short, out}}
	}
	return out
}

// describe adds what the reference says about a key. Where the default depends on other
// keys, the description says it.
func (w *schemaWriter) describe(s map[string]any, path string) {
	text, ok := w.text(path)
	if !ok && s["anyOf"] != nil { // the other spelling sets this key of the table
		if text, ok = w.text(path + ".kind"); !ok {
			text, ok = w.text(path + ".uri")
		}
	}
	if !ok {
		return
	}
	_, has := s["default"]
	if d := text.Default; d != "" && !has && !strings.HasPrefix(d, "required") {
		text.Text += " (default: " + d + ")"
	}
	s["description"] = text.Text
}

// text returns the text of a key. Keys that stand in several tables are described once: as
// engine for all engines, as algorithm.KIND for all trainings, and at the top of the file
// for the tables that a grader, a reflection or [defaults] repeat.
func (w *schemaWriter) text(path string) (keyText, bool) {
	path = strings.Replace(path, "engines.NAME.", "engine.", 1)
	for _, kind := range []string{AlgorithmSFT, AlgorithmRM} {
		if rest, ok := strings.CutPrefix(path, "algorithm."+kind+"."); ok {
			if t, ok := w.texts["algorithm.KIND."+rest]; ok {
				return t, true
			}
		}
	}
	for {
		if t, ok := w.texts[path]; ok {
			return t, true
		}
		_, rest, deeper := strings.Cut(path, ".")
		if !deeper || !strings.Contains(rest, ".") && path != "defaults."+rest {
			return keyText{}, false
		}
		path = rest
	}
}

// durationPattern matches what time.ParseDuration accepts and no check refuses for its
// sign.
const durationPattern = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// shortDuration writes a duration without the units that are 0.
func shortDuration(d Duration) string {
	s := d.Std().String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ruleOf returns the rule of a type's key.
func ruleOf(t reflect.Type, f keyField, path string) schemaRule {
	names := []string{t.Name() + "." + f.key}
	switch t { // the keys of an embedded struct
	case reflect.TypeFor[Engine]():
		names = append(names, "Request."+f.key)
	case reflect.TypeFor[Pool]():
		names = append(names, "PoolMachines."+f.key)
	}
	for _, name := range names {
		if r, ok := schemaRules()[name]; ok {
			return r.at(path)
		}
	}
	return schemaRule{}
}
