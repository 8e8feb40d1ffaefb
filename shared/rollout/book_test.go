package rollout

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// ticketLine returns a line of the mission spam.
func ticketLine(group, label string) string {
	return fmt.Sprintf(`{"group_id":%q,"mission":"spam","content":"about %s","label":%q}`, group, group, label)
}

// refusals returns the invalid lines, as "line group cause: message".
func (f *fixture) refusals() (out []string) {
	f.t.Helper()
	for _, line := range linesOf(f.object(refusedKey(testRun))) {
		var r Refused
		f.check(json.Unmarshal([]byte(line), &r))
		out = append(out, fmt.Sprintf("%d %s %s: %s", r.Line, r.Group, r.Cause, r.Message))
	}
	return out
}

func TestImportKeepsTicketsAndSaysWhatIsNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{Answer: &config.Answer{Verdicts: []string{"yes", "no"}}},
		"\ufeff"+ticketLine("a", "yes"),
		ticketLine("a", "no"),            // the same group with another label
		"",                               // a blank line is none
		ticketLine("a", "yes"),           // again
		`{"group_id":"b","mission":"?"}`, // no ticket
		ticketLine("a", ""),              // the same group without a label
		ticketLine("c", "maybe"),         // a label that no answer can have
		`{"group_id":"d","mission":"spam","messages":[{"role":"user","content":"x"}]}`, // no place for guidance
		ticketLine("e", "yes")+"\r", "",
	)
	if b := f.book(); !reflect.DeepEqual(b, Book{Tickets: 4, Refused: 4}) {
		t.Errorf("the book is %+v", b)
	}
	want := []string{ticketLine("a", "yes"), ticketLine("a", "no"), ticketLine("a", ""), ticketLine("e", "yes")}
	if got := linesOf(f.object(ticketsKey(testRun))); !slices.Equal(got, want) {
		t.Errorf("the tickets are\n%s", strings.Join(got, "\n"))
	}
	got := f.refusals()
	for n, part := range []string{"4 a duplicate_id: line 1 has the same group_id and label",
		`5 b invalid_line: it has no content`, `7 c invalid_line: its label "maybe" is not in answer.verdicts`,
		`8 d invalid_line: its messages leave no place for the guidance`} {
		if n >= len(got) || !strings.HasPrefix(got[n], part) {
			t.Errorf("refusal %d of\n%s\nis not %q", n, strings.Join(got, "\n"), part)
		}
	}
}

// TestImportRefusesWhatNoRequestCanBeMadeOf checks lines that are tickets, but whose
// requests every member would fail with.
func TestImportRefusesWhatNoRequestCanBeMadeOf(t *testing.T) {
	t.Parallel()
	c := config.Run{Rollout: &config.Rollout{System: "{guidance}", Prompt: "{content}{content}"}}
	for _, tt := range []struct{ name, line, want string }{
		{"a message that is no object", `{"group_id":"g","mission":"spam","messages":[7]}`,
			"invalid_line: its request is refused"},
		{"nested just too deep", `{"group_id":"g","mission":"spam","content":"c","x":` + strings.Repeat("[", 199) +
			strings.Repeat("]", 199) + `}`, "invalid_line: its request is refused"},
		{"too long", `{"group_id":"g","mission":"spam","content":"` + strings.Repeat("c", maxRequest/2) + `"}`,
			"too_long: its request has 419"},
		{"too long as it is written", `{"group_id":"g","mission":"spam","content":"x` +
			strings.Repeat("\u2028", maxRequest/8) + `"}`, "too_long: its request has 629"},
		{"over the limit of a line", `{"group_id":"g","mission":"spam","content":"` + strings.Repeat("c", 17<<20) + `"}`,
			"invalid_line: the line is longer than 16 MiB"},
	} {
		f := newFixture(t, c, tt.line, ticketLine("h", ""))
		if b := f.book(); !reflect.DeepEqual(b, Book{Tickets: 1, Refused: 1}) || !strings.Contains(f.refusals()[0], tt.want) {
			t.Errorf("%s: %+v, %.200q", tt.name, b, f.refusals())
		}
	}
}

func TestFileWithoutTicketsHasAnEmptyBook(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{"empty": nil, "blank": {"", " "}, "nonsense": {"x", "[]"}} {
		f := newFixture(t, config.Run{}, lines...)
		if b := f.book(); b.Tickets != 0 || b.Refused != len(f.refusals()) {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

func TestTooManyTicketsAreAnError(t *testing.T) {
	t.Parallel()
	c, err := newChecker(config.Run{Missions: twoMissions})
	if err != nil {
		t.Fatal(err)
	}
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(ticketLine(fmt.Sprint(i), "") + "\n")
		}
		return b.String() + "nonsense\n" + ticketLine("0", "") + "\n" // neither counts
	}
	for _, n := range []int{3, 4} {
		i := importer{run: record.Manifest{Config: config.Run{Missions: twoMissions}}, checker: c, limit: 3,
			keys: map[identity.ContentID]uint64{}}
		err := i.read(t.Context(), strings.NewReader(lines(n)), &strings.Builder{})
		if n == 3 && (err != nil || len(i.places) != 3) {
			t.Errorf("%d tickets: %v", n, err)
		}
		if n == 4 && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(),
			"line 4 is one of more than 3 tickets")) {
			t.Errorf("%d tickets: %v", n, err)
		}
	}
}

func TestImportOfAChangedOrMissingFileIsAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{}, ticketLine("a", ""))
	f.put(ticketsFile, "other")
	if _, err := Import(t.Context(), f.blobs, f.m, f.from); fault.ClassOf(err) != fault.InputChanged {
		t.Errorf("a changed file: %v", err)
	}
	f.check(f.blobs.Delete(t.Context(), ticketsFile, ""))
	if _, err := Import(t.Context(), f.blobs, f.m, f.from); !fault.Is(err, fault.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
	if got := f.objects(); len(got) > 0 {
		t.Errorf("it wrote %v", got)
	}
}

func TestImportGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	fresh := func() *fixture {
		return newFixture(t, config.Run{}, ticketLine("a", ""), "nonsense that is no ticket", ticketLine("b", ""))
	}
	crashEverywhere(t, fresh, func(f *fixture, blobs blob.Store) error {
		b, err := Import(t.Context(), blobs, f.m, f.from)
		if err == nil && !reflect.DeepEqual(b, Book{Tickets: 2, Refused: 1}) {
			t.Errorf("the book is %+v", b)
		}
		return err
	})
}

// TestOrderOfTicketsIsThatOfTheSeed checks golden orders: the same tickets are in the same
// batches on every machine.
func TestOrderOfTicketsIsThatOfTheSeed(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 10 {
		lines = append(lines, ticketLine(fmt.Sprint(i), ""))
	}
	for seed, want := range map[int64]string{0: "1539678402", 7: "3286109574"} {
		f := newFixture(t, config.Run{Rollout: &config.Rollout{Seed: seed, Prompt: "{guidance}{content}"}}, lines...)
		f.book()
		got := ""
		for ticket, err := range ticketsOf(t.Context(), f.blobs, f.m, orderKey(testRun), Span{0, 10}) {
			f.check(err)
			if ticket.Group != fmt.Sprint(ticket.number) {
				t.Errorf("ticket %d is %s", ticket.number, ticket.Group)
			}
			got += ticket.Group
		}
		if got != want {
			t.Errorf("the order of seed %d is %s, not %s", seed, got, want)
		}
		part := ""
		for ticket, err := range ticketsOf(t.Context(), f.blobs, f.m, orderKey(testRun), Span{3, 7}) {
			f.check(err)
			part += ticket.Group
		}
		if len(got) == 10 && part != got[3:7] {
			t.Errorf("its tickets from 3 to 7 are %s of %s", part, got)
		}
	}
}

func TestFewLongTicketsAreReadAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lengths []uint32
		want    int
	}{
		{slices.Repeat([]uint32{10}, 100), ticketsAtOnce},
		{[]uint32{1, 2}, 2},
		{[]uint32{bytesAtOnce + 1, 1}, 1},
		{[]uint32{bytesAtOnce / 2, bytesAtOnce / 2, 1}, 2},
	} {
		var places []place
		for _, n := range c.lengths {
			places = append(places, place{length: n})
		}
		if got := together(places); got != c.want {
			t.Errorf("of %v it takes %d, want %d", c.lengths, got, c.want)
		}
	}
}

func TestDamagedOrderIsFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{}, ticketLine("a", ""), ticketLine("b", ""))
	f.book()
	for _, err := range ticketsOf(t.Context(), f.blobs, f.m, orderKey(testRun), Span{1, 3}) {
		if fault.KindOf(err) != fault.Corrupt {
			t.Errorf("tickets behind the end: %v", err)
		}
	}
}
