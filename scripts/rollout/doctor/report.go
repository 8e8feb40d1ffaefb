package doctor

import (
	"context"
	"errors"
	"strings"
	"time"

	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/fault"
)

// Check is one check.
type Check struct {
	Name  string
	Limit time.Duration // a check that takes longer fails
	// Probe makes the check and returns what it found, for people.
	Probe func(ctx context.Context) (found string, err error)
	// Remedy says what to do about a failure; "" if the error says it better itself.
	Remedy func(error) string
}

// The states of a result.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip" // it can't be made from here, or an earlier failure has the same remedy
)

// maxWrong bounds what a check whose failure has the remedy of an earlier one says, in
// characters: the earlier one says all.
const maxWrong = 300

// Result is the result of a check. Its JSON form is a contract.
type Result struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	LatencyMS int64  `json:"latency_ms"`
	Found     string `json:"found,omitempty"` // what there is, for people; only of a passed one
	Error     string `json:"error,omitempty"` // with the remedy; only of a failure
	Note      string `json:"note,omitempty"`  // why the check says nothing, or what failed; only of a skipped one
	// Follows is the earlier check whose remedy comes first; only of one that failed and is skipped.
	Follows string `json:"follows,omitempty"`

	wrong, remedy string // parts for people
}

// Summary counts results.
type Summary struct {
	Passed         int   `json:"pass_count"`
	Failed         int   `json:"fail_count"`
	Skipped        int   `json:"skip_count,omitempty"`
	TotalLatencyMS int64 `json:"total_latency_ms"`
}

// Report holds the results of all checks. Its JSON form is a contract.
type Report struct {
	Checks  []Result `json:"checks"`
	Summary Summary  `json:"summary"`
}

// Run makes the checks in order and passes each result to tell as it comes. A failure with the
// remedy of an earlier one counts as skipped: it mostly goes away together with that one, which
// says what to do. It keeps its own words, for it may be another fault.
func Run(ctx context.Context, checks []Check, c clock.Clock, tell func(Result)) Report {
	r := Report{Checks: []Result{}}
	causes := map[string]string{} // the first check that failed, by its remedy
	for _, check := range checks {
		result := check.run(ctx, c)
		if result.Status == Fail && result.remedy != "" {
			if cause, known := causes[result.remedy]; known {
				result = result.following(cause)
			} else {
				causes[result.remedy] = result.Name
			}
		}
		r.Checks = append(r.Checks, result)
		r.Summary.TotalLatencyMS += result.LatencyMS
		switch result.Status {
		case Pass:
			r.Summary.Passed++
		case Skip:
			r.Summary.Skipped++
		default:
			r.Summary.Failed++
		}
		tell(result)
	}
	return r
}

func (k Check) run(ctx context.Context, c clock.Clock) Result {
	began := c.Now()
	limited, cancel := context.WithTimeout(ctx, k.Limit)
	defer cancel()
	found, err := k.Probe(limited)
	r := Result{Name: k.Name, Status: Pass, LatencyMS: max(0, c.Now().Sub(began).Milliseconds())}
	if err == nil {
		r.Found = found
		return r
	}
	var unseen *cloud.Unseen
	if errors.As(err, &unseen) {
		r.Status, r.Note = Skip, unseen.Reason
		return r
	}
	r.Status, r.wrong, r.remedy = Fail, without(err), k.Remedy(err)
	if limited.Err() != nil && ctx.Err() == nil {
		r.wrong = "it took longer than " + k.Limit.String() + ": " + r.wrong
		r.remedy = k.Remedy(fault.WithKind(fault.Unavailable, err, "wait"))
	}
	if r.remedy == "" {
		r.remedy = fault.RemedyOf(err)
	}
	if r.Error = r.wrong; r.remedy != "" {
		r.Error += " (" + r.remedy + ")"
	}
	return r
}

// following returns the result of a check whose failure has the remedy of an earlier one, cause.
func (r Result) following(cause string) Result {
	wrong := []rune(r.wrong)
	if len(wrong) > maxWrong {
		wrong = append(wrong[:maxWrong], '…')
	}
	return Result{Name: r.Name, Status: Skip, LatencyMS: r.LatencyMS, Note: string(wrong), Follows: cause}
}

// without renders an error without its remedies.
func without(err error) string {
	var own *fault.Error
	errors.As(err, &own)
	switch {
	case own == nil:
		return err.Error()
	case error(own) != err: // an error of another package, such as an SDK, wraps ours
		return strings.ReplaceAll(err.Error(), own.Error(), without(own))
	case own.Err == nil && own.Op == "":
		return own.Kind.String()
	case own.Err == nil:
		return own.Op
	case own.Op == "":
		return without(own.Err)
	}
	return own.Op + ": " + without(own.Err)
}
