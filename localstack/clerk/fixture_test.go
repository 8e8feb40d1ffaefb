package clerk_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"rollout/localstack/clerk"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/rules"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

const (
	testRun   = identity.RunID("01J0000000000000000000TEST")
	modelURI  = "clerk"
	ticketsAt = "prompts/tickets.jsonl"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// reply is what a model answers: a text or, in a request that failed, its class and the
// message in text.
type reply struct {
	text  string
	class fault.Class
}

// model answers the request of the item with that id. It may be called in any order.
type model func(id string, body []byte) reply

// bench is a run without workers, over a bucket in memory: it appends a stage, answers
// its lines, and appends the next one, until there are no more lines.
//
//	Append ─▶ lines ─▶ model ─▶ rows ─▶ Append ─▶ … ─▶ Publish
type bench struct {
	testing.TB
	bucket   *memory.Bucket
	manifest record.Manifest
	source   record.Ranges
	answer   model
	// shuffle decides the order in which items are answered; 0 is that of the items.
	shuffle uint64

	again    func(stage int) bool      // whether a shard of it was claimed more than once; nil: never
	outcomes map[int][]rollout.Outcome // by the number of the stage
	first    map[int]uint64            // the first item of each stage
	items    uint64
	calls    map[string]int    // of the model, by item
	bodies   map[string][]byte // of the requests, by item
}

// newBench returns a run of the config over those lines of tickets.
func newBench(t testing.TB, c config.Run, tickets string, answer model) *bench {
	t.Helper()
	c.Kind = config.KindRollout
	b := &bench{TB: t, bucket: memory.NewBucket(clock.Fixed(testTime)), answer: answer,
		outcomes: map[int][]rollout.Outcome{}, first: map[int]uint64{}, calls: map[string]int{}, bodies: map[string][]byte{}}
	info, err := b.bucket.Put(t.Context(), ticketsAt, strings.NewReader(tickets), blob.PutOptions{})
	b.check(err)
	b.source = record.Ranges{Key: ticketsAt, Version: info.Version, Size: info.Size, Count: 1}
	b.manifest = record.Manifest{Schema: record.Schema, Run: testRun, Kind: c.Kind, Config: c, ModelURI: modelURI,
		Inputs: []record.Input{{Key: ticketsAt, Version: info.Version, Size: info.Size}}}
	return b
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// runConfig reads a config file, which must be valid.
func runConfig(t testing.TB, text string) config.Run {
	t.Helper()
	c, err := config.ParseRun("run.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// demo returns the shipped example: its config and its tickets.
func demo(t testing.TB) (config.Run, string) {
	t.Helper()
	text, err := os.ReadFile("../../examples/refunds.toml")
	if err != nil {
		t.Fatal(err)
	}
	tickets, err := os.ReadFile("../../examples/refunds.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return runConfig(t, string(text)), string(tickets)
}

// small returns a run that learns in fewer answers: two epochs of 240 tickets.
func small(t testing.TB) (config.Run, string) {
	t.Helper()
	c, tickets := demo(t)
	c.Rollout.Epochs = 2
	c.Decodes[0].Samples = 2
	c.Runner.RolloutBatchSize = 40
	c.Reflection.BatchSize = 8
	c.Gate.HoldoutShare, c.Gate.Resamples = 0.1, 400
	return c, strings.Join(strings.SplitAfter(tickets, "\n")[:240], "")
}

// clerks is the clerk as a model.
func clerks(t testing.TB) model {
	return func(id string, body []byte) reply {
		text, ok := clerk.Answer(body)
		if !ok {
			t.Errorf("the clerk does not know what to do with %s: %.300s", id, body)
		}
		return reply{text: text}
	}
}

// appendStage appends the stage of that number over the store, and returns its lines:
// none at the end. What exists is not written again.
func (b *bench) appendStage(blobs blob.Store, number int, w func(io.Writer) io.Writer) (lines []byte, err error) {
	at := record.AppendedKey(testRun, number)
	if have, err := input.ReadObject(b.Context(), blobs, at, 1<<30); !fault.Is(err, fault.NotFound) {
		return have, err
	}
	outcomes := func(yield func(rollout.Outcome, error) bool) {
		for n, o := range b.outcomes[number-1] {
			o.Again = n == 7 && b.again != nil && b.again(number-1)
			if !yield(o, nil) {
				return
			}
		}
	}
	var text bytes.Buffer
	g := rollout.Growing{Blobs: blobs, Manifest: b.manifest, Source: b.source, Outcomes: outcomes}
	if err := g.Append(b.Context(), number, w(&text)); err != nil {
		return nil, err
	}
	_, err = blobs.Put(b.Context(), at, bytes.NewReader(text.Bytes()), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // another call was faster, with the same lines
		have, err := input.ReadObject(b.Context(), blobs, at, 1<<30)
		if err == nil && !bytes.Equal(have, text.Bytes()) {
			err = fmt.Errorf("stage %d was appended twice, with other lines", number)
		}
		return have, err
	}
	return text.Bytes(), err
}

func plainly(w io.Writer) io.Writer { return w }

// run runs to the end, and publishes.
func (b *bench) run() record.Rollout {
	b.Helper()
	for number := 1; b.stage(b.bucket, number, plainly); number++ {
		if number > 3000 {
			b.Fatal("the run has 3000 stages and does not end")
		}
	}
	return b.publish()
}

// wantRefused checks that the run asks nothing and ends with an error that says why.
func (b *bench) wantRefused(why string) {
	b.Helper()
	_, err := b.appendStage(b.bucket, 1, plainly)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
		b.Errorf("the first stage fails with %v, not because %s", err, why)
	}
}

// stage appends a stage and answers its lines. more is false if there are none.
func (b *bench) stage(blobs blob.Store, number int, w func(io.Writer) io.Writer) (more bool) {
	b.Helper()
	lines, err := b.appendStage(blobs, number, w)
	b.check(err)
	b.ask(number, lines)
	return len(lines) > 0
}

// ask answers the lines of a stage, unless they are answered.
func (b *bench) ask(number int, text []byte) {
	if b.outcomes[number] != nil || len(text) == 0 {
		return
	}
	s, err := rollout.ReadStage(b.Context(), b.bucket, testRun, number)
	b.check(err)
	lines := bytes.SplitAfter(text, []byte{'\n'})
	lines = lines[:len(lines)-1]
	order := make([]int, len(lines))
	for n := range order {
		order[n] = n
	}
	if b.shuffle > 0 {
		rand.New(rand.NewPCG(b.shuffle, uint64(number))).Shuffle(len(order), func(i, j int) {
			order[i], order[j] = order[j], order[i]
		})
	}
	out := make([]rollout.Outcome, len(lines))
	for _, n := range order {
		out[n] = b.item(s.Kind.Role(), b.items+uint64(n), bytes.TrimSuffix(lines[n], []byte{'\n'}))
	}
	b.first[number], b.outcomes[number] = b.items, out
	b.items += uint64(len(lines))
}

// item asks about one line, and writes its row as a worker does.
func (b *bench) item(role string, index uint64, line []byte) rollout.Outcome {
	it, err := dialect.Parse(dialect.Plain, line)
	b.check(err)
	c := b.manifest.Config
	if role == rollout.RoleReflect {
		c.Sampling = c.Reflection.ReflectionSampling()
	}
	m := dialect.NewModel(modelURI, identity.Content([]byte(modelURI)), c)
	id := it.ItemID(m, index)
	body := it.Body(nil, modelURI, c.Sampling, id, 0)
	b.calls[it.ID]++
	b.bodies[it.ID] = body
	r := b.answer(it.ID, body)
	if r.class != "" {
		place := dialect.Place{Item: index, File: "range 1", Line: 1}
		f := it.Failure(it.RowID(id), place, r.class, cmp.Or(r.text, "it failed"))
		row := dialect.AppendError(nil, dialect.Plain, f)
		return rollout.Outcome{Line: line, Class: r.class, Row: bytes.TrimSuffix(row, []byte{'\n'})}
	}
	said := dialect.Answer{Text: r.text, FinishReason: "stop",
		Usage: dialect.Usage{PromptTokens: int64(len(body)) / 4, CompletionTokens: int64(len(r.text)) / 4}}
	row := dialect.AppendOutput(nil, it, m, dialect.Result{ID: it.RowID(id), Answers: []dialect.Answer{said},
		GeneratedAt: testTime, Scores: b.scores(line, r.text)})
	return rollout.Outcome{Line: line, Row: bytes.TrimSuffix(row, []byte{'\n'})}
}

// scores returns the members of a row with the scores of an answer; nil without graders.
func (b *bench) scores(line []byte, answer string) []byte {
	graders := b.manifest.Config.Grades
	if len(graders) == 0 {
		return nil
	}
	scores := make([]grade.Score, len(graders))
	for n, c := range graders {
		g, err := rules.New(c)
		b.check(err)
		scores[n] = g.Grade(b.Context(), []grade.Case{{Answer: answer, Expected: grade.Lookup(line, c.Expected)}})[0]
	}
	return grade.AppendMembers(nil, graders, [][]grade.Score{scores})
}

// publish writes the output files of the answers, and the files of the rollout.
func (b *bench) publish() record.Rollout {
	b.Helper()
	var rows, errs bytes.Buffer
	var attempts []rollout.Attempt
	answers := uint64(0)
	for s, err := range rollout.Stages(b.Context(), b.bucket, b.manifest) {
		b.check(err)
		for n, items := range s.Shards(b.manifest.Config) {
			attempts = append(attempts, rollout.Attempt{Shard: n, Items: items, Attempt: 1, Worker: "w"})
		}
		if s.Kind != rollout.Answering {
			continue
		}
		for _, o := range b.outcomes[s.Input] {
			answers++
			if o.Class != "" {
				errs.Write(append(bytes.Clone(o.Row), '\n'))
			} else {
				rows.Write(append(bytes.Clone(o.Row), '\n'))
			}
		}
	}
	for name, content := range map[string]*bytes.Buffer{record.CompletionsFile: &rows, record.ErrorsFile: &errs} {
		_, err := b.bucket.Put(b.Context(), record.OutputKey(testRun, name), content, blob.PutOptions{})
		b.check(err)
	}
	sum, err := rollout.Ended{Blobs: b.bucket, Manifest: b.manifest,
		Outcomes: rollout.Outcomes(b.Context(), b.bucket, b.manifest, answers),
		Attempts: func(yield func(rollout.Attempt, error) bool) {
			for _, a := range attempts {
				if !yield(a, nil) {
					return
				}
			}
		}}.Publish(b.Context())
	b.check(err)
	return sum
}

// stages returns the stages so far.
func (b *bench) stages() (out []rollout.Stage) {
	for s, err := range rollout.Stages(b.Context(), b.bucket, b.manifest) {
		b.check(err)
		out = append(out, s)
	}
	return out
}

// objects returns all objects that the run wrote, but for the files named.
func (b *bench) objects(but ...string) map[string]string {
	b.Helper()
	out := map[string]string{}
	all, err := b.bucket.List(b.Context(), "", "", blob.MaxList)
	b.check(err)
	if len(all) == blob.MaxList {
		b.Fatal("the run has more objects than are listed at once")
	}
	for _, o := range all {
		out[o.Key] = b.object(o.Key)
	}
	for _, name := range but {
		delete(out, record.OutputKey(testRun, name))
	}
	return out
}

func (b *bench) object(key string) string {
	b.Helper()
	content, err := input.ReadObject(b.Context(), b.bucket, key, 1<<30)
	b.check(err)
	return string(content)
}

// same compares all objects of two runs, but for the files named.
func same(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	for key := range want {
		if _, ok := got[key]; !ok {
			t.Errorf("%s: %s is missing", what, key)
		}
	}
	for key, content := range got {
		switch other, ok := want[key]; {
		case !ok:
			t.Errorf("%s: %s is there too", what, key)
		case content != other:
			at := 0
			for at < min(len(content), len(other)) && content[at] == other[at] {
				at++
			}
			t.Errorf("%s: %s differs at byte %d: %.80q, want %.80q", what, key, at, content[at:], other[at:])
		}
	}
}

// reflections returns the rows of reflection.jsonl.
func (b *bench) reflections() (out []rollout.Record) {
	b.Helper()
	for line := range strings.Lines(b.object(record.OutputKey(testRun, rollout.ReflectionFile))) {
		var r rollout.Record
		b.check(json.Unmarshal([]byte(line), &r))
		out = append(out, r)
	}
	return out
}

// memberLine is what tests read of a line.
type memberLine struct {
	ID       string
	Messages []struct{ Role, Content string }
	Epoch    int
	Batch    int
	Step     int
	Seed     int64
	Ticket   struct {
		Group   string `json:"group_id"`
		Mission string
	}
}

func lineOf(t testing.TB, line []byte) (l memberLine) {
	t.Helper()
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return l
}

// containsText reports whether the first message of a line has the text.
func containsText(line []byte, text string) bool {
	var l memberLine
	return json.Unmarshal(line, &l) == nil && len(l.Messages) > 0 && strings.Contains(l.Messages[0].Content, text)
}
