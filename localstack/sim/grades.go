package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"rollout/gpuworker/grading"
	"rollout/shared/config"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// graders are those of the graded worlds: one that needs nothing but the answer, and
// one whose service is slow, wrong and dead at times.
func graders() []config.Grade {
	return []config.Grade{{Name: "seven", Kind: config.GradeRegex, Pattern: "7"},
		{Name: "reward", Kind: config.GradeHTTP, Service: "reward"}}
}

// scoringService is the service that the deployment has.
func scoringService() config.GraderService {
	s := config.DefaultGraderService()
	s.URL, s.Batch, s.Concurrency, s.Retries = "http://reward.test", 4, 2, 4
	s.Timeout, s.MaxWait = config.Duration(5*time.Second), config.Duration(time.Minute)
	return s
}

// trueScores are the scores of an answer, which depend only on it. The service has
// none for some.
func trueScores(answer string) []grade.Score {
	seven, reward := grade.Score{}, grade.Score{Value: float64(len(answer)%5) / 4}
	if strings.Contains(answer, "7") {
		seven.Value = 1
	}
	if len(answer)%11 == 3 {
		reward = grade.Missing(grade.Declined)
	}
	return []grade.Score{seven, reward}
}

// rewardService is the scoring service as a process reaches it.
type rewardService struct{ *process }

// services connects the process to the scoring services of its deployment.
func (p *process) services() *grading.Services {
	s, err := grading.Connect(p.ctx, p.world.deploy.Graders, grading.Options{Log: p.world.ports(p).Log,
		HTTPClient: &http.Client{Transport: rewardService{p}}})
	if err != nil {
		p.world.t.Fatal(err)
	}
	return s
}

// RoundTrip implements http.RoundTripper.
func (r rewardService) RoundTrip(req *http.Request) (*http.Response, error) {
	w, ctx := r.world, req.Context()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	label := "reward/" + r.name
	pause(ctx, w.rand.duration(label, time.Millisecond, 900*time.Millisecond))
	if err := errors.Join(ctx.Err(), r.checkAlive(ctx)); err != nil {
		return nil, err
	}
	var got struct{ Items []struct{ Answer string } }
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, err
	}
	scores := []string{}
	for _, it := range got.Items {
		s := "null"
		if reward := trueScores(it.Answer)[1]; reward.Cause == "" {
			s = fmt.Sprint(reward.Value)
		}
		scores = append(scores, s)
	}
	status := http.StatusOK
	if w.faultsOn() {
		switch w.rand.intN("mood/"+label, 20) {
		case 0:
			return nil, errors.New("injected: connection refused")
		case 1:
			status = http.StatusServiceUnavailable
		case 2:
			scores = scores[1:]
		case 3:
			<-ctx.Done() // it hangs
			return nil, ctx.Err()
		case 4:
			scores[0] = `"1"`
		}
	}
	text := fmt.Sprintf(`{"scores":[%s]}`, strings.Join(scores, ","))
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// expectScores returns the members with the scores of an answered line. Row is the
// item's row if the run is as expected: a score of the service may be missing in it,
// and no score may be another than the true one.
func (s *scenario) expectScores(l line, answer string, row []byte) []byte {
	if len(s.cfg.Grades) == 0 {
		return nil
	}
	if s.tickets != nil {
		return s.ticketScores(l, answer)
	}
	var want []grade.Score
	r, _ := grade.ReadRow(row) // another row has other bytes than the expected one
	if s.cfg.Grades[0].Kind != config.GradeJudge {
		want = trueScores(answer)
		faults := []grade.Cause{grade.Unavailable, grade.TimedOut, grade.Malformed, grade.Stopped}
		if got := r.Scores["reward"]; got.Score == nil && slices.Contains(faults, got.Cause) {
			want[1] = grade.Missing(got.Cause)
		}
	}
	if s.judging {
		style := trueVerdict(answer)
		if got := r.Scores[judgeName]; !s.isDone && got.Score == nil && got.Cause == grade.Stopped {
			style = grade.Missing(grade.Stopped)
		}
		want = append(want, style)
	}
	return grade.AppendMembers(nil, s.cfg.Grades, [][]grade.Score{want})
}

// checkScores checks the summary's mean scores against the output rows.
func (s *scenario) checkScores(out [][]byte, sum record.Summary) {
	if len(s.cfg.Grades) == 0 {
		if sum.Score != nil || sum.Scores != nil {
			s.audit.breakf("the summary of a run without graders has scores: %+v", sum.Scores)
		}
		return
	}
	for _, g := range s.cfg.Grades {
		scored, missing, total := uint64(0), uint64(0), 0.0
		for _, row := range out {
			r, err := grade.ReadRow(bytes.TrimSpace(row))
			switch {
			case err != nil:
				s.audit.breakf("%v: %s", err, row)
			case r.Scores[g.Name].Score == nil:
				missing++
			default:
				scored++
				total += *r.Scores[g.Name].Score
			}
		}
		got := sum.Scores[g.Name]
		if got.Scored != scored || got.Missing != missing || (got.Mean == nil) != (scored == 0) {
			s.audit.breakf("the summary has %+v of the grader %s, want %d scored and %d missing", got, g.Name, scored, missing)
		}
		if got.Mean != nil && (*got.Mean > total/float64(scored)+1e-9 || *got.Mean < total/float64(scored)-1e-9) {
			s.audit.breakf("the summary has the mean %v of the grader %s, want %v", *got.Mean, g.Name, total/float64(scored))
		}
	}
}
