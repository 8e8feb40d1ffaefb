package planned

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// Deployment are the resources of an installation.
type Deployment struct{ Resources []Resource }

// Resource is a resource with all its arguments.
type Resource struct {
	Address string // Example: google_pubsub_topic.topic["plan"]
	Type    string // Example: google_pubsub_topic
	Values  Object
}

// Object is a block, or the values of a resource.
type Object map[string]any

// Read reads what `tofu show -json` prints of a plan.
func Read(shown []byte) (Deployment, error) {
	var in struct {
		Planned struct {
			Root struct {
				Resources []struct {
					Resource
					Mode string
				}
			} `json:"root_module"`
		} `json:"planned_values"`
	}
	if err := json.Unmarshal(shown, &in); err != nil {
		return Deployment{}, fmt.Errorf("read the plan: %w", err)
	}
	var d Deployment
	for _, r := range in.Planned.Root.Resources {
		if r.Mode == "managed" {
			d.Resources = append(d.Resources, r.Resource)
		}
	}
	return d, nil
}

// Of returns the resources of the type.
func (d Deployment) Of(kind string) (out []Resource) {
	for _, r := range d.Resources {
		if r.Type == kind {
			out = append(out, r)
		}
	}
	return out
}

// reference matches what a plan makes up. Example: google_pubsub_topic.id(rollout-plan)
var reference = regexp.MustCompile(`(google_[a-z0-9_]+\.[a-z0-9_]+)\(([^()]*)\)`)

// Resolve replaces each reference in all values. value returns the attribute, such as
// "google_pubsub_topic.id", of the resource of a name, and false if it is not known: then
// the reference stays.
func (d Deployment) Resolve(value func(attribute, name string) (string, bool)) Deployment {
	replace := func(text string) string {
		return reference.ReplaceAllStringFunc(text, func(found string) string {
			parts := reference.FindStringSubmatch(found)
			if known, ok := value(parts[1], parts[2]); ok {
				return known
			}
			return found
		})
	}
	out := Deployment{make([]Resource, len(d.Resources))}
	for i, r := range d.Resources {
		r.Values, _ = resolve(map[string]any(r.Values), replace).(map[string]any)
		out.Resources[i] = r
	}
	return out
}

// resolve returns a value with all its texts replaced.
func resolve(v any, replace func(string) string) any {
	switch v := v.(type) {
	case string:
		return replace(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = resolve(v[i], replace)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			out[name] = resolve(v[name], replace)
		}
		return out
	}
	return v
}

// Text returns the text at a name, or "".
func (o Object) Text(name string) string {
	s, _ := o[name].(string)
	return s
}

// Number returns the number at a name, or 0.
func (o Object) Number(name string) int {
	n, _ := o[name].(float64)
	return int(n)
}

// Is reports whether the value at a name is true.
func (o Object) Is(name string) bool { return o[name] == true }

// Texts returns the list or set of texts at a name.
func (o Object) Texts(name string) (out []string) {
	list, _ := o[name].([]any)
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}

// Blocks returns the blocks at a name.
func (o Object) Blocks(name string) (out []Object) {
	list, _ := o[name].([]any)
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Block returns the first block at the path, or an empty one.
func (o Object) Block(path ...string) Object {
	for _, name := range path {
		all := o.Blocks(name)
		if len(all) == 0 {
			return Object{}
		}
		o = all[0]
	}
	return o
}
