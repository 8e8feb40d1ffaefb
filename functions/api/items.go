package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"rollout/functions/diagnosis"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// runOf returns the run that the path names.
func runOf(r *http.Request) identity.RunID { return identity.RunID(r.PathValue("id")) }

// HistoryPoint is how far a run was at a time.
type HistoryPoint struct {
	Seconds  int   `json:"t"` // since Start
	Done     int   `json:"done"`
	Failed   int   `json:"failed"`
	InFlight int   `json:"in_flight"` // requests at that time; the others are counts so far
	Tokens   int64 `json:"tokens"`    // of answers
}

// getHistory answers with how a run went on: at most 120 points over its whole life.
func (s *Service) getHistory(r *http.Request) (int, any, error) {
	p, err := s.reader.Progress(r.Context(), runOf(r), nil)
	if err != nil {
		return 0, nil, err
	}
	var out struct {
		Start  *time.Time     `json:"start"` // the first dispatch
		Points []HistoryPoint `json:"points"`
	}
	out.Points = []HistoryPoint{}
	if at := p.State.StartedAt; !at.IsZero() {
		at = at.UTC()
		out.Start = &at
	}
	for _, q := range p.State.History.Points {
		out.Points = append(out.Points, HistoryPoint{q.At, q.Done, q.Failed, q.InFlight, q.Tokens})
	}
	return http.StatusOK, out, nil
}

// getErrors answers with the classes of a run's failed items, each with some of them, and with the
// finish reasons of the others.
func (s *Service) getErrors(r *http.Request) (int, any, error) {
	st, classes, err := s.explainer.Failures(r.Context(), runOf(r))
	reasons := st.FinishReasons
	if reasons == nil {
		reasons = map[string]int{}
	}
	return http.StatusOK, struct {
		Classes []diagnosis.FailedClass `json:"classes"`
		Finish  map[string]int          `json:"finish_reasons"`
	}{classes, reasons}, err
}

// Sizes of a page of items.
const (
	defaultItems = 50
	maxItems     = 200
)

// itemFilterOf reads the parameters of a request for items.
func itemFilterOf(r *http.Request) (f diagnosis.ItemFilter, err error) {
	q := r.URL.Query()
	f = diagnosis.ItemFilter{Limit: defaultItems, Class: fault.Class(q.Get("class")), FinishReason: q.Get("finish_reason"),
		Text: q.Get("q"), Bytes: pageBytes}
	if v := q.Get("limit"); v != "" {
		if f.Limit, err = strconv.Atoi(v); err != nil || f.Limit < 1 || f.Limit > maxItems {
			return f, fault.New(fault.Invalid, "limit=%.20s must be a number from 1 to %d", v, maxItems)
		}
	}
	if v := q.Get("after"); v != "" {
		if f.From, err = strconv.ParseUint(v, 10, 63); err != nil {
			return f, fault.New(fault.Invalid, "after=%.40s must be the next of the page before", v)
		}
	}
	for name, to := range map[string]**float64{"min_score": &f.MinScore, "max_score": &f.MaxScore} {
		v := q.Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(n) {
			return f, fault.New(fault.Invalid, "%s=%.40s must be a number", name, v)
		}
		*to = &n
	}
	return f, nil
}

// getItems answers with a page of a run's items.
func (s *Service) getItems(r *http.Request) (int, any, error) {
	f, err := itemFilterOf(r)
	if err != nil {
		return 0, nil, err
	}
	p, err := s.explainer.Items(r.Context(), runOf(r), f)
	if err != nil {
		return 0, nil, err
	}
	var next *string
	if p.Next != nil {
		text := strconv.FormatUint(*p.Next, 10)
		next = &text
	}
	return http.StatusOK, struct {
		Items   []diagnosis.ListedItem `json:"items"`
		Next    *string                `json:"next"`
		Scanned uint64                 `json:"scanned"`
		Unread  uint64                 `json:"unread"` // of those, items whose rows are too long to be read here
		Of      uint64                 `json:"of"`
	}{p.Items, next, p.Scanned, p.Unread, p.Of}, nil
}

// ItemDetail is one item, as GET /v1/runs/{id}/items/{index} answers it.
type ItemDetail struct {
	Item     uint64                `json:"index"`
	ID       string                `json:"id"`
	State    diagnosis.ListedState `json:"state"`
	Request  json.RawMessage       `json:"request"` // diagnosis.ShownRequest; null if there is none
	Answer   *itemAnswer           `json:"answer"`  // null before it has one
	Error    *itemError            `json:"error"`
	Score    *float64              `json:"score"` // of the row
	Scores   json.RawMessage       `json:"scores"`
	Attempts uint64                `json:"attempts"` // claims of its shard
	Timings  itemTimings           `json:"timings"`
	Where    json.RawMessage       `json:"where"` // diagnosis.ItemReport
	// Truncated are the members that are shortened, such as "answer" for its texts, and "answer.row".
	Truncated []string `json:"truncated"`
}

type itemAnswer struct {
	Answers          json.RawMessage `json:"answers"` // diagnosis.ShownAnswer
	Row              json.RawMessage `json:"row"`     // of the run's files: it has also what is not a text
	PromptTokens     *int64          `json:"prompt_tokens"`
	CompletionTokens *int64          `json:"completion_tokens"`
}

type itemError struct {
	Class   fault.Class `json:"class"`
	Message string      `json:"message"`
}

type itemTimings struct {
	ClaimedAt  *time.Time `json:"claimed_at"` // the last claim of its shard
	AnsweredAt *time.Time `json:"answered_at"`
}

// Parts of an item, in bytes.
const (
	itemRequest  = 18 << 10
	itemAnswers  = 20 << 10 // and the row has what they leave of itemAnswered
	itemAnswered = 26 << 10
	itemScores   = 4 << 10
	itemWhere    = 10 << 10
	itemText     = 2 << 10
)

// getItem answers with one item.
func (s *Service) getItem(r *http.Request) (int, any, error) {
	index, err := strconv.ParseUint(r.PathValue("index"), 10, 63)
	if err != nil {
		return 0, nil, fault.New(fault.Invalid, "%.40q is not the index of an item", r.PathValue("index"))
	}
	st, shown, err := s.explainer.Show(r.Context(), runOf(r), fmt.Sprint("#", index))
	if err != nil {
		return 0, nil, err
	}
	if len(shown) == 0 {
		return 0, nil, fault.New(fault.NotFound, "run %s has no item %d", st.Run, index)
	}
	it := shown[0]
	d := ItemDetail{Item: it.Item, State: listedState(it.State, st.Phase), Score: it.Score, Truncated: []string{}}
	d.Timings.AnsweredAt = it.GeneratedAt
	if it.Shard != nil {
		d.Attempts, d.Timings.ClaimedAt = it.Shard.Attempt, it.Shard.Since
	}
	if d.ID = firstBytes(it.ID); d.ID != it.ID {
		d.Truncated = append(d.Truncated, "id")
	}
	if it.Class != "" {
		d.Error = &itemError{it.Class, firstBytes(it.Why)}
		if d.Error.Message != it.Why {
			d.Truncated = append(d.Truncated, "error")
		}
	}
	var answer itemAnswer
	scores := it.Scores
	if scores == nil {
		scores = map[string]grade.RowScore{}
	}
	for _, part := range []struct {
		name  string
		value any
		to    *json.RawMessage
		most  int
	}{
		{"request", it.Request, &d.Request, itemRequest}, {"answer", it.Answers, &answer.Answers, itemAnswers},
		{"scores", scores, &d.Scores, itemScores}, {"where", it.ItemReport, &d.Where, itemWhere},
	} {
		b, short, err := encodeShort(part.value, part.most)
		if err != nil {
			return 0, nil, err
		}
		if *part.to = b; short {
			d.Truncated = append(d.Truncated, part.name)
		}
	}
	if len(it.Answers) > 0 {
		row, short, err := encodeShort(it.Output, itemAnswered-len(answer.Answers))
		if err != nil {
			return 0, nil, err
		}
		if short {
			d.Truncated = append(d.Truncated, "answer.row")
		}
		answer.Row, answer.PromptTokens, answer.CompletionTokens = row, it.PromptTokens, it.CompletionTokens
		d.Answer = &answer
	}
	slices.Sort(d.Truncated)
	return http.StatusOK, d, nil
}

// listedState returns what lists call a state.
func listedState(s diagnosis.ItemState, phase run.Phase) diagnosis.ListedState {
	switch s {
	case diagnosis.Answered:
		return diagnosis.ListedDone
	case diagnosis.Failed, diagnosis.NotProcessed:
		return diagnosis.ListedFailed
	case diagnosis.Assigned, diagnosis.Suspected, diagnosis.OnProbation, diagnosis.Checkpointed:
		return diagnosis.ListedInHand
	case diagnosis.Copied:
		if phase.Ended() {
			return diagnosis.ListedDone
		}
	}
	return diagnosis.ListedWaiting
}
