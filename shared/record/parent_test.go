package record

import (
	"testing"

	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

func TestSelectionSelectsByRowOrByIndex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		only  []string
		items []interval.Range
		item  uint64
		class fault.Class
		want  bool
	}{
		{"an answer is not failed", []string{"failed"}, nil, 1, "", false},
		{"any class is failed", []string{"failed"}, nil, 1, fault.TooLong, true},
		{"what the end left is failed too", []string{"failed"}, nil, 1, fault.CanceledItem, true},
		{"a class", []string{"timeout", "engine"}, nil, 1, fault.Engine, true},
		{"another class", []string{"timeout"}, nil, 1, fault.Engine, false},
		{"unanswered", []string{"unanswered"}, nil, 1, fault.Expired, true},
		{"at fault", []string{"unanswered"}, nil, 1, fault.Timeout, false},
		{"all has the answers", []string{"all"}, nil, 1, "", true},
		{"an index", nil, []interval.Range{{Lo: 4, Hi: 6}}, 5, "", true},
		{"another index", nil, []interval.Range{{Lo: 4, Hi: 6}}, 6, fault.Timeout, false},
		{"a class besides indexes", []string{"timeout"}, []interval.Range{{Lo: 4, Hi: 6}}, 6, fault.Timeout, true},
	} {
		s := Selection{Only: c.only, Items: interval.Of(c.items...)}
		if got := s.Selects(c.item, c.class); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		var again Selection
		if err := Decode(Encode(s), &again, "it"); err != nil || again.String() != s.String() {
			t.Errorf("%s is read back as %s, %v", s, again, err)
		}
	}
}

func TestSelectionThatMatchesNothingIsInvalid(t *testing.T) {
	t.Parallel()
	var scattered interval.Set
	for n := range MaxSelected + 1 {
		scattered.Add(2 * n)
	}
	for name, s := range map[string]Selection{
		"empty": {}, "a wrong word": {Only: []string{"failed", "sad"}}, "too many ranges": {Items: scattered},
	} {
		if err := s.Check(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Selection{Only: []string{"failed", "timeout"}}).Check(); err != nil {
		t.Error(err)
	}
}
