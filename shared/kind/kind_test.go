package kind_test

import (
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/kind"
)

func TestTableHasEveryKindThatConfigsMayName(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]string{
		config.KindBatch: config.ExecutorInfer, config.KindRollout: config.ExecutorInfer,
		config.KindTrain: config.ExecutorTrain, config.KindTrials: config.ExecutorInfer,
	} {
		k, err := kind.Table{}.Of(name)
		if err != nil || k.Name != name || k.Executor != executor || k.Complete == nil {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
}

func TestUnknownKindIsRefusedByName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "trial", "Batch"} {
		_, err := kind.Table{}.Of(name)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `"`+name+`"`) ||
			!strings.Contains(err.Error(), "use one of: batch, rollout, train, trials") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestWithAddsAKindToACopyOfTheTable(t *testing.T) {
	t.Parallel()
	var zero kind.Table
	one := zero.With(kind.Kind{Name: "one"})
	two, other := one.With(kind.Kind{Name: "two"}), one.With(kind.Kind{Name: "other"})
	for _, c := range []struct {
		table kind.Table
		has   string // of one, two and other
	}{{zero, ""}, {one, "one"}, {two, "one two"}, {other, "one other"}} {
		var has []string
		for _, name := range []string{"one", "two", "other"} {
			if k, err := c.table.Of(name); err == nil && k.Name == name {
				has = append(has, name)
			}
		}
		if got := strings.Join(has, " "); got != c.has {
			t.Errorf("it has %q, not %q", got, c.has)
		}
		if _, err := c.table.Of(config.KindBatch); err != nil {
			t.Error(err)
		}
	}
}
