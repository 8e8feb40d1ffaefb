package record

import (
	"testing"

	"rollout/shared/core/interval"
	"rollout/shared/dialect"
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
		{"a pruned item did not fail", []string{"failed"}, nil, 1, fault.Pruned, false},
		{"a pruned item by its class", []string{"pruned"}, nil, 1, fault.Pruned, true},
		{"a server failed an unscored item", []string{"unscored"}, nil, 1, fault.Engine, true},
		{"the end left an unscored item", []string{"unscored"}, nil, 1, fault.CanceledItem, true},
		{"an item that failed by itself has a score", []string{"unscored"}, nil, 1, fault.Refused, false},
		{"a pruned item is not unscored", []string{"unscored"}, nil, 1, fault.Pruned, false},
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

func TestUnscoredAnswersAreSelectedByTheirRows(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]bool{
		`{"completion":"a","score":1,"scores":{"g":{"score":1}}}`:                                      false,
		`{"completion":"a","score":null,"scores":{"g":{"score":null,"cause":"timeout"}}}`:              true,
		`{"completion":"a","score":1,"scores":{"g":{"score":1},"h":{"score":null,"cause":"timeout"}}}`: false,
		`{"completion":"a"}`: false,
		`{"completion":`:     false,
	} {
		s := Selection{Only: []string{SelectUnscored}}
		if got := s.SelectsRow(1, "", dialect.Plain, []byte(row)); got != want || !s.ReadsAnswers() {
			t.Errorf("%s: %v", row, got)
		}
		if (Selection{Only: []string{SelectFailed}}).SelectsRow(1, "", dialect.Plain, []byte(row)) {
			t.Errorf("%s has not failed", row)
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
