package rollout

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/record"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// smallRun is a run of five tickets in batches of two, with three members each: what each
// member answers is in its ticket.
func smallRun(t testing.TB) *fixture {
	return newFixture(t, config.Run{
		Decodes: []config.Decode{{Samples: 2}, {Temperature: number(0)}},
		Answer:  &config.Answer{Pattern: `(?i)verdict: *([a-z]+)`, IgnoreCase: true},
		Runner:  &config.Runner{RolloutBatchSize: 2},
	},
		`{"group_id":"agreed","mission":"spam","content":"c","label":"Yes","says":["yes","YES","yes"]}`,
		`{"group_id":"mixed","mission":"spam","content":"c","label":"yes","says":["yes","no","no"]}`,
		`nonsense`,
		`{"group_id":"tied","mission":"refunds","content":"c","says":["yes","no","?"]}`,
		`{"group_id":"failed","mission":"spam","content":"c","label":"yes","says":["!engine","!timeout","?"]}`,
		`{"group_id":"wrong","mission":"spam","content":"c","label":"yes","says":["no","no","no"],"other":{"a":1.0}}`,
	)
}

// saysIt answers a member as its ticket has it: "!class" fails, and "?" has no verdict.
func saysIt(t testing.TB, text string) answer {
	l := memberLine(t, text)
	var ticket struct{ Says []string }
	if err := json.Unmarshal(l.Ticket, &ticket); err != nil {
		t.Fatal(err)
	}
	word := ticket.Says[l.Decode*2+l.Sample]
	switch {
	case strings.HasPrefix(word, "!"):
		return answer{class: fault.Class(word[1:])}
	case word == "?":
		return answer{text: "I do not know <&>"}
	}
	return answer{text: "Because.\nVerdict: " + word}
}

// TestFilesOfARollout compares the files of a small run with golden ones.
func TestFilesOfARollout(t *testing.T) {
	t.Parallel()
	f := smallRun(t)
	outcomes, stages := f.run(1000, func(_ int, line string) answer { return saysIt(t, line) })
	sum, err := f.ended(f.blobs, len(outcomes), Attempt{Shard: 0, Items: 6, Attempt: 1, Worker: "w"}).Publish(t.Context())
	f.check(err)
	if len(outcomes) != 15 || len(stages) != 3 {
		t.Errorf("%d items in %d batches", len(outcomes), len(stages))
	}
	if sum.Tickets != 5 || sum.Refused != 1 || sum.Batches != 3 || sum.Answered != 11 ||
		sum.Failed[string(fault.Engine)] != 1 ||
		sum.Failed["unparsable"] != 2 || sum.Failed[string(fault.Timeout)] != 1 {
		t.Errorf("the summary is %+v", sum)
	}
	var b bytes.Buffer
	for _, name := range []string{TrajectoriesFile, FailuresFile, SelectionsFile, ReviewFile, MetricsFile, AttemptsFile,
		AuditFile} {
		fmt.Fprintf(&b, "== %s\n%s", name, f.object(record.OutputKey(testRun, name)))
	}
	path := filepath.Join("testdata", "small_run.txt")
	if *rewrite {
		f.check(os.WriteFile(path, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	f.check(err)
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("the files are not those of %s (-rewrite writes it):\n%s", path, b.String())
	}
}

// TestPublishGoesOnAfterACrash ends the process at each file.
func TestPublishGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	items := 0
	fresh := func() *fixture {
		f := smallRun(t)
		outcomes, _ := f.run(1000, func(_ int, line string) answer { return saysIt(t, line) })
		items = len(outcomes)
		return f
	}
	var sums []string
	crashEverywhere(t, fresh, func(f *fixture, blobs blob.Store) error {
		sum, err := f.ended(blobs, items, Attempt{Shard: 3}).Publish(t.Context())
		if err == nil {
			sums = append(sums, string(record.Encode(sum)))
		}
		return err
	})
	if sums = slices.Compact(sums); len(sums) != 1 {
		t.Errorf("the sums are %v", sums)
	}
}

func TestRunThatEndedBeforeItsFirstBatchHasEmptyFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{}, ticketLine("a", ""))
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		f.put(record.OutputKey(testRun, name), "")
	}
	sum, err := f.ended(f.blobs, 0).Publish(t.Context())
	if err != nil || sum.Tickets != 0 || sum.Refused != 0 || sum.Agreement != nil {
		t.Errorf("%+v, %v", sum, err)
	}
	for _, name := range []string{TrajectoriesFile, FailuresFile, SelectionsFile, ReviewFile, AttemptsFile} {
		if rows := f.rows(name); len(rows) > 0 {
			t.Errorf("%s has %v", name, rows)
		}
	}
	if rows := f.rows(MetricsFile); len(rows) != 1 {
		t.Errorf("the metrics are %v", rows)
	}
}

// TestPlanThatEndedWithinATicketHasItsMembers publishes a run that was stopped while a
// batch was planned.
func TestPlanThatEndedWithinATicketHasItsMembers(t *testing.T) {
	t.Parallel()
	f := smallRun(t)
	outcomes, _ := f.run(7, func(_ int, line string) answer { return saysIt(t, line) })
	sum, err := f.ended(f.blobs, len(outcomes)).Publish(t.Context())
	f.check(err)
	if got := len(f.rows(TrajectoriesFile)) + len(f.rows(FailuresFile)) - sum.Refused; got != 7 {
		t.Errorf("7 members have %d rows", got)
	}
	if len(f.rows(SelectionsFile)) != 3 || sum.Tickets != 3 || sum.Batches != 2 {
		t.Errorf("its selections are %v, its sums %+v", f.rows(SelectionsFile), sum)
	}
}

func TestDamagedOutputIsFound(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(completions, errs string) (string, string){
		"a lost row":           func(c, e string) (string, string) { return c[strings.Index(c, "\n")+1:], e },
		"a lost error row":     func(c, e string) (string, string) { return c, "" },
		"half a row":           func(c, e string) (string, string) { return c[:len(c)-3], e },
		"a row of nonsense":    func(c, e string) (string, string) { return "x\n" + c[strings.Index(c, "\n")+1:], e },
		"an error of nonsense": func(c, e string) (string, string) { return c, "{}\n" + e },
	} {
		f := smallRun(t)
		outcomes, _ := f.run(1000, func(_ int, line string) answer { return saysIt(t, line) })
		c, e := damage(f.object(record.OutputKey(testRun, record.CompletionsFile)),
			f.object(record.OutputKey(testRun, record.ErrorsFile)))
		f.put(record.OutputKey(testRun, record.CompletionsFile), c)
		f.put(record.OutputKey(testRun, record.ErrorsFile), e)
		if _, err := f.ended(f.blobs, len(outcomes)).Publish(t.Context()); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		for key := range f.objects() {
			if strings.HasSuffix(key, SelectionsFile) {
				t.Errorf("%s: half a file stays at %s", name, key)
			}
		}
	}
}
