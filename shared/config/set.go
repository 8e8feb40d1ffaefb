package config

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"rollout/shared/fault"
)

// maxSetting bounds the length of one setting, in bytes.
const maxSetting = 64 << 10

// Set returns the run's config with the settings, such as "sampling.max_tokens=800",
// written over it as if the file had them. A later setting of a key wins. A value is
// TOML; one that is not TOML is text. Tables are merged, and lists are replaced. r stays
// as it is. Errors are Invalid and hold Problems.
func (r Run) Set(settings []string) (Run, error) {
	if len(settings) == 0 {
		return r, nil
	}
	err := set(settings, &r, func(c *checker) { r.check(c, "") })
	return r, err
}

// set writes the settings over the config that into points to, and runs check on it. It
// changes no map and nothing behind a pointer of the config: other copies share them.
func set(settings []string, into any, check func(*checker)) error {
	c := newChecker("--set", nil)
	tree := map[string]any{}
	for _, s := range settings {
		if part, ok := c.setting(s); ok && !merge(tree, part) {
			c.add(s, "sets a part of a key that an earlier setting gave a value of another type: set it once")
		}
	}
	if len(c.problems) > 0 {
		return c.err()
	}
	if r, ok := into.(interface {
		normalize(*checker, map[string]any)
	}); ok {
		r.normalize(c, tree)
	}
	v := reflect.ValueOf(into).Elem()
	b := &binder{checker: c, known: pathsOf(v.Type(), ""), merge: true}
	b.table(v, tree, "")
	check(c)
	return c.err()
}

// setting parses KEY=VALUE. It returns false after adding the problem of another text.
func (c *checker) setting(s string) (map[string]any, bool) {
	key, value, ok := strings.Cut(s, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	switch {
	case !ok || key == "" || value == "":
		c.add(shorten(s), "is not a setting: write KEY=VALUE, such as sampling.max_tokens=800")
		return nil, false
	case len(s) > maxSetting || strings.ContainsAny(s, "\n\r"):
		c.add(shorten(key), "must be one line of at most %d bytes: write longer values into the config file", maxSetting)
		return nil, false
	}
	var tree map[string]any
	for _, text := range []string{value, quoteTOML(value)} {
		src := key + " = " + text
		if _, over := scan([]byte(src)); over.line > 0 {
			c.add(shorten(key), "%s", over.why)
			return nil, false
		}
		if _, err := toml.Decode(src, &tree); err == nil {
			return tree, true
		}
		tree = nil
	}
	c.add(shorten(key), "is not the name of a key: write it as in sampling.max_tokens=800")
	return nil, false
}

// quoteTOML returns a TOML string with the text.
func quoteTOML(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// merge writes the values of from over those of into. It returns false if one of the two
// has a table where the other has a value.
func merge(into, from map[string]any) bool {
	for key, value := range from {
		before, known := into[key]
		table, isTable := value.(map[string]any)
		old, wasTable := before.(map[string]any)
		switch {
		case known && isTable != wasTable:
			return false
		case known && isTable:
			if !merge(old, table) {
				return false
			}
		default:
			into[key] = value
		}
	}
	return true
}

// MaskSettings returns the settings without the values of [request], which may be keys or
// prompts: for people, and for files that are passed on.
func MaskSettings(settings []string) []string {
	out := slices.Clone(settings)
	for i, s := range out {
		for _, key := range SettingKeys([]string{s}) {
			if key == "request" || strings.HasPrefix(key, "request.") {
				name, _, _ := strings.Cut(s, "=")
				out[i] = strings.TrimSpace(name) + "=(left out)"
			}
		}
	}
	return out
}

// SettingKeys returns the keys that the settings name, sorted, with dots between their
// parts. Settings that Set refuses have none.
func SettingKeys(settings []string) []string {
	keys := map[string]bool{}
	for _, s := range settings {
		if tree, ok := newChecker("", nil).setting(s); ok {
			addKeys(keys, tree, "")
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func addKeys(keys map[string]bool, tree map[string]any, at string) {
	for key, value := range tree {
		if table, ok := value.(map[string]any); ok && len(table) > 0 {
			addKeys(keys, table, join(at, key))
		} else {
			keys[join(at, key)] = true
		}
	}
}

// SetRun returns a run's config file with the settings written over it, without comments.
// Nil src is a file without keys beside base: the config that counts where there is no
// file. Messages name the source by file. Errors are Invalid and hold Problems.
func SetRun(file string, src []byte, base Run, settings []string) ([]byte, error) {
	r := base
	if src != nil {
		var err error
		if r, err = ParseRun(file, src); err != nil {
			return nil, err
		}
	}
	r, err := r.Set(settings)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := toml.NewEncoder(&out)
	e.Indent = ""
	err = e.Encode(r)
	return out.Bytes(), fault.WithKind(fault.Internal, err, "write the config")
}

// Set returns the deployment with the settings written over it: see Run.Set. Settings that
// say which installation it is are Invalid, because other programs read them from the file.
func (d Deployment) Set(settings []string) (Deployment, error) {
	if len(settings) == 0 {
		return d, nil
	}
	err := set(settings, &d, func(c *checker) {
		for _, key := range SettingKeys(settings) {
			if key == "bucket" || key == "cloud" || strings.HasPrefix(key, "cloud.") {
				c.add(key, "says which installation it is: write it into its rollout.toml")
			}
		}
		d.check(c)
		d.allow()
	})
	return d, err
}

// Set returns the file of `rollout infer batch` with the settings written over it: see
// Run.Set.
func (f Infer) Set(settings []string) (Infer, error) {
	if len(settings) == 0 {
		return f, nil
	}
	err := set(settings, &f, func(c *checker) { f.check(c) })
	return f, err
}

// Set returns the file of `rollout train` with the settings written over it: see Run.Set.
func (t Train) Set(settings []string) (Train, error) {
	if len(settings) == 0 {
		return t, nil
	}
	err := set(settings, &t, func(c *checker) { t.check(c) })
	return t, err
}
