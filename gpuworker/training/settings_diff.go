package training

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// checkSameSettings names the first setting that differs between a state's training
// and this one. A training of a constant learning rate may be given more steps,
// or fewer: nothing else depends on their number.
func checkSameSettings(was, now config.Algorithm) error {
	a, err := tree(was)
	if err != nil {
		return err
	}
	b, err := tree(now)
	if err != nil {
		return err
	}
	if now.Common().Optimizer.Schedule == config.ScheduleConstant {
		for _, t := range []map[string]any{a, b} {
			if settings, ok := t[now.Kind].(map[string]any); ok {
				delete(settings, "budget")
			}
		}
	}
	path, x, y := firstDifference("algorithm", a, b)
	if path == "" {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the state was trained with %s = %v, here it is %v", path, shown(x), shown(y)),
		Remedy: "set it back to go on, or begin another training with base_model \"" + config.SnapshotPrefix + "ID\""}
}

func tree(a config.Algorithm) (map[string]any, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	var t map[string]any
	err = json.Unmarshal(text, &t)
	return t, err
}

// firstDifference returns the path, in the order of names, of the first value
// that differs; "" if none does.
func firstDifference(at string, a, b map[string]any) (path string, x, y any) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := at + "." + name
		inner, ok := a[name].(map[string]any)
		other, ok2 := b[name].(map[string]any)
		if ok && ok2 {
			if path, x, y := firstDifference(path, inner, other); path != "" {
				return path, x, y
			}
		} else if !reflect.DeepEqual(a[name], b[name]) {
			return path, a[name], b[name]
		}
	}
	return "", nil, nil
}

func shown(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(x)
	}
	return string(text)
}
