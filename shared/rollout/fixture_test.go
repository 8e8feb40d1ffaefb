package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/record"
)

const testRun identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

const ticketsFile = "prompts/t.jsonl"

// fixture is a rollout over a bucket in memory.
type fixture struct {
	t     testing.TB
	blobs blob.Store
	m     record.Manifest
	from  record.Ranges
}

// newFixture returns a rollout of these lines. Without missions in the config it has
// twoMissions.
func newFixture(t testing.TB, c config.Run, lines ...string) *fixture {
	t.Helper()
	c.Kind = config.KindRollout
	if c.Missions == nil {
		c.Missions = twoMissions
	}
	f := &fixture{t: t, blobs: memory.NewBucket(clock.System{}), m: record.Manifest{Schema: record.Schema, Run: testRun,
		Kind: config.KindRollout, Dialect: "plain", Config: c, Inputs: []record.Input{{Key: ticketsFile}}}}
	f.from = record.Ranges{Key: ticketsFile, Version: f.put(ticketsFile, strings.Join(lines, "\n"))}
	return f
}

func (f *fixture) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// put writes an object and returns its version.
func (f *fixture) put(key, content string) string {
	f.t.Helper()
	info, err := f.blobs.Put(f.t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	f.check(err)
	return info.Version
}

func (f *fixture) object(key string) string {
	f.t.Helper()
	r, _, err := f.blobs.Get(f.t.Context(), key, blob.GetOptions{})
	f.check(err)
	defer r.Close()
	b, err := io.ReadAll(r)
	f.check(err)
	return string(b)
}

// rows returns the lines of an output file.
func (f *fixture) rows(file string) []string {
	f.t.Helper()
	return linesOf(f.object(record.OutputKey(testRun, file)))
}

func linesOf(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })
}

// book imports the tickets.
func (f *fixture) book() Book {
	f.t.Helper()
	b, err := Import(f.t.Context(), f.blobs, f.m, f.from)
	f.check(err)
	return b
}

// first returns the stage of the first batch.
func first(m record.Manifest, b Book) Stage {
	s, _ := start(m, b).nextBatch(m.Config)
	return s
}

// write writes the stage, and its lines as the object that is planned.
func (f *fixture) write(s Stage) []string {
	f.t.Helper()
	var b bytes.Buffer
	s, err := s.save(f.t.Context(), f.blobs, testRun)
	f.check(err)
	f.check(Growing{Blobs: f.blobs, Manifest: f.m}.write(f.t.Context(), s, &b))
	f.put(record.AppendedKey(testRun, s.Input), b.String())
	return linesOf(b.String())
}

// answer is what a model says to a member, or the class with which it fails.
type answer struct {
	text   string
	class  fault.Class
	scores string // members of the row
}

// run answers all batches of the run, as ask says for the number of an item and its line,
// until items are answered. It writes the output files.
func (f *fixture) run(items int, ask func(item int, line string) answer) (outcomes []Outcome, stages []Stage) {
	f.t.Helper()
	reader, err := NewReader(f.m.Config)
	f.check(err)
	book := f.book()
	var completions, failures strings.Builder
	s, more := first(f.m, book), book.Tickets > 0
	for more && len(outcomes) < items {
		stages = append(stages, s)
		totals := s.Totals.Clone()
		begin := len(outcomes)
		for _, line := range f.write(s) {
			if len(outcomes) == items {
				break
			}
			o := outcome(f.t, len(outcomes), line, ask(len(outcomes), line))
			if outcomes = append(outcomes, o); o.Class == "" {
				completions.Write(o.Row)
			} else {
				failures.Write(o.Row)
			}
		}
		for group := range slices.Chunk(outcomes[begin:], s.Members) {
			g, err := reader.Read(group)
			f.check(err)
			totals.Add(g)
		}
		s, more = s.nextBatch(f.m.Config)
		s.Totals = totals
	}
	f.put(record.OutputKey(testRun, record.CompletionsFile), completions.String())
	f.put(record.OutputKey(testRun, record.ErrorsFile), failures.String())
	return outcomes, stages
}

// outcome is the line of an item with the row that a worker writes.
func outcome(t testing.TB, item int, line string, a answer) Outcome {
	t.Helper()
	it, err := dialect.Parse(dialect.Plain, []byte(line))
	if err != nil {
		t.Fatalf("the line %s of a member is refused: %v", line, err)
	}
	if a.class != "" {
		return Outcome{Line: []byte(line), Class: a.class, Row: dialect.AppendError(nil, dialect.Plain,
			it.Failure("", dialect.Place{Item: uint64(item)}, a.class, "it failed"))}
	}
	row := dialect.AppendOutput(nil, it, dialect.Model{URI: "mock"}, dialect.Result{ID: it.RowID(identity.ContentID{}),
		Answers:     []dialect.Answer{{Text: a.text, FinishReason: "stop"}},
		GeneratedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	if a.scores != "" {
		row = fmt.Appendf(bytes.TrimRight(row, "}\n"), ",%s}\n", a.scores)
	}
	return Outcome{Line: []byte(line), Row: row}
}

// ended returns the ended run, whose items have results.
func (f *fixture) ended(blobs blob.Store, items int, attempts ...Attempt) Ended {
	return Ended{Blobs: blobs, Manifest: f.m, Outcomes: Outcomes(f.t.Context(), blobs, f.m, uint64(items)),
		Attempts: func(yield func(Attempt, error) bool) {
			for _, a := range attempts {
				if !yield(a, nil) {
					return
				}
			}
		}}
}

// crashes is a bucket of a process that ends at a put: before it, within it, or behind it.
type crashes struct {
	blob.Store
	puts *int // until the one
	when string
}

var errCrash = errors.New("the process ended")

func (c crashes) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if *c.puts--; *c.puts != 0 {
		if *c.puts < 0 {
			return blob.Info{}, errCrash
		}
		return c.Store.Put(ctx, key, r, o)
	}
	switch c.when {
	case "before":
		return blob.Info{}, errCrash
	case "within":
		_, err := io.CopyN(io.Discard, r, 10)
		return blob.Info{}, errors.Join(errCrash, err)
	}
	_, err := c.Store.Put(ctx, key, r, o)
	return blob.Info{}, errors.Join(errCrash, err)
}

// objects returns all objects of the bucket.
func (f *fixture) objects() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, prefix := range []string{record.WorkPrefix, record.RunsPrefix} {
		infos, err := f.blobs.List(f.t.Context(), prefix, "", 1000)
		f.check(err)
		for _, i := range infos {
			all[i.Key] = f.object(i.Key)
		}
	}
	return all
}

// crashEverywhere has a process that does something crash at each of its puts in turn, and
// another process do the same then. The objects must be those of a process that does not
// crash.
func crashEverywhere(t *testing.T, fresh func() *fixture, do func(*fixture, blob.Store) error) {
	t.Helper()
	whole := fresh()
	whole.check(do(whole, whole.blobs))
	want, crashed := whole.objects(), 0
	for _, when := range []string{"before", "within", "behind"} {
		for n := 1; ; n++ {
			f, left := fresh(), n
			err := do(f, crashes{f.blobs, &left, when})
			if err == nil {
				break
			}
			if !errors.Is(err, errCrash) {
				t.Fatalf("a crash %s put %d: %v", when, n, err)
			}
			f.check(do(f, f.blobs))
			if got := f.objects(); !maps.Equal(got, want) {
				t.Fatalf("after a crash %s put %d the objects are\n%v, not\n%v", when, n, got, want)
			}
			if crashed++; crashed > 100 {
				t.Fatal("it never ends")
			}
		}
	}
	if crashed < 3 {
		t.Errorf("it crashed %d times", crashed)
	}
}
