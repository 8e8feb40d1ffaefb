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

// checkSameSettings returns an Invalid fault that names the first setting that
// differs between saved, the settings of a state, and now. With a constant learning
// rate, the number of steps may differ, because nothing else depends on it.
func checkSameSettings(saved, now config.Algorithm) error {
	a, err := tree(saved)
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
	return &fault.Error{
		Kind:   fault.Invalid,
		Err:    fmt.Errorf("the state was trained with %s = %v, now it is %v", path, shown(x), shown(y)),
		Remedy: "restore the old value to continue, " + newTrainingRemedy,
	}
}

// tree returns the settings as decoded JSON.
func tree(a config.Algorithm) (map[string]any, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	var t map[string]any
	err = json.Unmarshal(text, &t)
	return t, err
}

// firstDifference returns the path of the first value that differs, in the order
// of names, and both values. The path is "" if all values are equal.
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

// shown returns a value as JSON, for messages.
func shown(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(x)
	}
	return string(text)
}
