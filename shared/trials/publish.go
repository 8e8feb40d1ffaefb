package trials

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// The files of a run of trials, under runs/<run>/, beside those of every run.
const (
	TrialsFile  = "trials.jsonl"  // a Fact for each trial, in the order of the schedule
	GradesFile  = "grades.jsonl"  // a Grade for each trial with an answer and each grader
	PruningFile = "pruning.jsonl" // a record.Look for each look, in a run that prunes
)

// Fact is a row of TrialsFile: what became of a trial. It is the same whoever did it, and when.
type Fact struct {
	Trial
	Verdict Verdict     `json:"verdict"`
	Class   fault.Class `json:"class,omitempty"` // of a trial without an answer
	// Score is that of the answer, or 0 of a trial that Failed; null in a run without graders,
	// and where there is none.
	Score            *float64 `json:"score"`
	Seed             int64    `json:"seed"`
	Finish           string   `json:"finish_reason,omitempty"`
	PromptTokens     *int64   `json:"prompt_tokens,omitempty"`
	CompletionTokens *int64   `json:"completion_tokens,omitempty"`
	// Agent is what its row says of the agent that answered: an AgentRecord.
	Agent json.RawMessage `json:"agent,omitempty"`
}

// Verdict says what a trial counts as. Example: "answered".
type Verdict string

// The verdicts.
const (
	Answered Verdict = "answered" // it has an answer
	// Failed is a trial that its variant lost: the model refused it, its prompt is too long, or
	// its agent left nothing that can be read. It scores 0.
	Failed Verdict = "failed"
	// Infrastructure is a trial that nothing can be said about: a server, a worker or the run
	// ended first. It is in no mean.
	Infrastructure Verdict = "infrastructure"
	Pruned         Verdict = "pruned" // the run decided not to try it
)

// VerdictOf returns what a trial counts as that ended with the class.
func VerdictOf(c fault.Class) Verdict {
	switch {
	case c == "":
		return Answered
	case c == fault.Pruned:
		return Pruned
	case c.OfItem():
		return Failed
	}
	return Infrastructure
}

// Grade is a row of GradesFile: what one grader said about a trial's answer.
type Grade struct {
	Trial
	Grader string      `json:"grader"`
	Score  *float64    `json:"score"`           // null without one
	Cause  grade.Cause `json:"cause,omitempty"` // why there is none
}

// Ended is a run of trials whose output files are written.
type Ended struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Trials   []string // keys of the objects with the lines of its trials, in their order
	Items    uint64   // trials with a row in the output files
	Looks    int      // that were decided
	// Deployment has the prices of engines, and Roles are the run's counts by role.
	Deployment config.Deployment
	Roles      []record.RoleCounts
}

// Publish writes the files of the run, those that exist excepted, and returns the sums. They are
// a function of the rows and of the prices.
func (e Ended) Publish(ctx context.Context) (record.Trials, error) {
	p := publisher{graded: len(e.Manifest.Config.Grades) > 0, sums: newSums(e.Manifest.Config)}
	p.trials = open(ctx, e.Blobs, record.OutputKey(e.Manifest.Run, TrialsFile))
	p.grades = open(ctx, e.Blobs, record.OutputKey(e.Manifest.Run, GradesFile))
	var err error
	for o, problem := range outcomes(ctx, e) {
		if err = problem; err == nil {
			err = fault.Wrap(p.add(e.Manifest, o), "trial %d", o.trial.Index)
		}
		if err != nil {
			break
		}
	}
	err = errors.Join(err, p.trials.finish(err), p.grades.finish(err))
	if err == nil && e.Manifest.Prunes() {
		err = e.publishLooks(ctx, p.sums)
	}
	if err == nil {
		err = p.sums.priced(e.Manifest, e.Deployment)
	}
	out := p.sums.result()
	out.JudgesUSD = judgesUSD(e.Deployment, e.Roles)
	return out, err
}

// publishLooks writes the pruning log, and adds to the sums where variants were pruned.
func (e Ended) publishLooks(ctx context.Context, s *sums) error {
	file := open(ctx, e.Blobs, record.OutputKey(e.Manifest.Run, PruningFile))
	var err error
	for n := 1; n <= e.Looks && err == nil; n++ {
		var l record.Look
		if l, err = ReadLook(ctx, e.Blobs, e.Manifest.Run, n); err == nil {
			s.look(l)
			err = file.row(l)
		}
	}
	return errors.Join(err, file.finish(err))
}

// publisher is a call of Publish.
type publisher struct {
	trials, grades *object
	graded         bool
	sums           *sums
}

// add writes the rows of a trial.
func (p *publisher) add(m record.Manifest, o outcome) error {
	f := Fact{Trial: o.trial, Class: o.class, Verdict: VerdictOf(o.class)}
	var asked struct{ Seed int64 }
	if err := json.Unmarshal(o.line, &asked); err != nil {
		return fault.WithKind(fault.Corrupt, err, "read its line")
	}
	f.Seed = asked.Seed
	var causes []grade.Cause
	switch f.Verdict {
	case Answered:
		out, err := dialect.ReadOutput(dialect.Plain, o.row)
		if err != nil {
			return err
		}
		if len(out.FinishReasons) > 0 {
			f.Finish = out.FinishReasons[0]
		}
		if u := out.Usage; !u.Unknown {
			f.PromptTokens, f.CompletionTokens = &u.PromptTokens, &u.CompletionTokens
		}
		f.Agent = agentOf(o.row)
		if !p.graded {
			break
		}
		r, err := grade.ReadRow(o.row)
		if err != nil {
			return err
		}
		f.Score = r.Score
		for _, g := range m.Config.Grades {
			s := r.Scores[g.Name]
			if s.Cause != "" && g.Share() > 0 {
				causes = append(causes, s.Cause)
			}
			if err := p.grades.row(Grade{o.trial, g.Name, s.Score, s.Cause}); err != nil {
				return err
			}
		}
	case Failed:
		if p.graded {
			f.Score = new(float64)
		}
	}
	p.sums.add(f, causes)
	return p.trials.row(f)
}

// object is an object of rows that is created while it is written.
type object struct {
	*bufio.Writer
	pipe *io.PipeWriter
	done chan error
}

// open begins to create an object. If it exists, what is written is dropped: it has the same
// bytes.
func open(ctx context.Context, blobs blob.Store, key string) *object {
	r, w := io.Pipe()
	o := &object{Writer: bufio.NewWriterSize(w, bufferSize), pipe: w, done: make(chan error, 1)}
	go func() {
		_, err := blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
		if fault.Is(err, fault.Conflict) {
			_, err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(err)
		o.done <- err
	}()
	return o
}

// row appends a row.
func (o *object) row(v any) error {
	_, err := o.Write(append(encode(v), '\n'))
	return err
}

// finish completes the object, or drops it if err is not nil. It returns the errors of creating
// it.
func (o *object) finish(err error) error {
	dropped := err != nil
	if !dropped {
		err = o.Flush()
	}
	o.pipe.CloseWithError(err) // nil is the object's end
	put := <-o.done
	if dropped {
		return nil
	}
	return cmp.Or(put, err)
}
