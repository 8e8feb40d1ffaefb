package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"unicode/utf8"

	"rollout/gpuworker/agentproxy"
	"rollout/gpuworker/isolation"
	"rollout/shared/fault"
)

// maxResult bounds the bytes of result.json and grade.json.
const maxResult = 1 << 20

// judge reads what a program has left, and says whose end it had. A result that it had left
// before it reached a limit is kept.
func judge(o isolation.Outcome, use agentproxy.Use, out string) Result {
	if o.Verdict == isolation.SetupFailed {
		return Result{End: NotStarted, Reason: o.Reason}
	}
	r := readResult(filepath.Join(out, "result.json"))
	if r.End == Answered {
		r.Found = true
		r = readGrade(r, filepath.Join(out, "grade.json"))
	}
	limit := use.Limit
	if limit == "" && o.Verdict != isolation.Exited && o.Verdict != isolation.Signaled {
		limit = string(o.Verdict)
	}
	switch {
	case use.LastFailed && !r.Found && (limit == "" || limit == string(isolation.TimeLimit) ||
		limit == agentproxy.RequestLimit):
		// Without a model, no agent can do better. It may have waited or asked until a limit.
		reason := r.Reason
		if limit != "" {
			reason = "the agent reached its limit " + limit
		}
		return Result{End: Infrastructure, Class: fault.Engine,
			Reason: fmt.Sprintf("the model did not answer %d requests, and %s", use.Failed, reason)}
	case limit != "":
		r.End, r.Limit, r.Reason = Limited, limit, ""
		return r
	case r.Found:
		return r
	case o.Verdict == isolation.Signaled:
		r.Reason += ", and the program ended by " + o.Signal
	case o.ExitCode != 0:
		r.Reason += fmt.Sprintf(", and the program ended with %d", o.ExitCode)
	}
	if said := o.Stderr.Kept; len(said) > 0 {
		r.Reason += fmt.Sprintf("; it wrote to its standard error: %q", said[max(0, len(said)-maxSaid):])
	}
	return r
}

// maxSaid bounds what a reason repeats of an agent's standard error.
const maxSaid = 300

// readResult reads a JSON object whose member answer, if it has one, is a text.
func readResult(path string) Result {
	text, err := readObject(path)
	if err != nil {
		return Result{End: ResultError, Reason: "result.json " + err.Error()}
	}
	var members struct {
		Answer *string `json:"answer"`
	}
	if err := json.Unmarshal(text, &members); err != nil {
		return Result{End: ResultError, Reason: "result.json has an answer that is not a text"}
	}
	r := Result{End: Answered, JSON: text}
	if members.Answer != nil {
		r.Answer = *members.Answer
	}
	return r
}

// readGrade adds the scores of a file that may be absent: {"score": 0.5}, or a number for each
// grader.
func readGrade(r Result, path string) Result {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return r
	}
	failed := func(format string, args ...any) Result {
		r.End, r.Reason, r.Scores = GradeError, "grade.json "+fmt.Sprintf(format, args...), nil
		return r
	}
	text, err := readObject(path)
	if err != nil {
		return failed("%s", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return failed("is not a JSON object")
	}
	r.Scores = map[string]float64{}
	if score, only := members["score"]; only {
		members = map[string]json.RawMessage{"": score}
	}
	for grader, value := range members {
		var score *float64
		if json.Unmarshal(value, &score) != nil || score == nil || math.IsInf(*score, 0) {
			return failed("has a score of %q that is not a number", grader)
		}
		r.Scores[grader] = *score
	}
	if len(r.Scores) == 0 {
		return failed("has no score")
	}
	return r
}

// readObject reads a file with one JSON object, and returns it compact.
func readObject(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("is missing")
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxResult:
		return nil, fmt.Errorf("is not a file of %d MiB at most", maxResult>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, errors.New("is not valid JSON")
	}
	if !utf8.Valid(text) {
		return nil, errors.New("is not UTF-8")
	}
	if !bytes.HasPrefix(compact.Bytes(), []byte("{")) {
		return nil, errors.New("is not a JSON object")
	}
	return compact.Bytes(), nil
}
