package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
)

// line is what tests read of a member's line.
type line struct {
	ID       string
	Messages []struct{ Role, Content string }
	lineTail
}

func memberLine(t rapid.TB, text string) (l line) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// asked returns the lines of the only ticket of a run.
func asked(t testing.TB, c config.Run, ticket string) []string {
	t.Helper()
	f := newFixture(t, c, ticket)
	b := f.book()
	if b.Tickets != 1 {
		t.Fatalf("the ticket %s is refused: %v", ticket, f.refusals())
	}
	return f.write(first(f.m, b))
}

func number(f float64) *float64 { return &f }

// TestMemberIsAskedWithItsDecode checks the golden lines of a ticket.
func TestMemberIsAskedWithItsDecode(t *testing.T) {
	t.Parallel()
	seed, tokens := int64(1<<31-2), 9
	got := asked(t, config.Run{
		Rollout:  &config.Rollout{Seed: 3, System: "Mission {mission}: {guidance}", Prompt: "Judge {content}"},
		Missions: []config.Mission{{Name: "spam", Scaffold: "Be short.", Entries: []string{"One.", "Two."}}},
		Decodes: []config.Decode{{}, {Temperature: number(0.5), TopP: number(1), MaxTokens: &tokens, Stop: []string{"\n"},
			Seed: &seed, Samples: 3}},
	}, `{"group_id":"g","content":"a <b>","label":"yes","x":1.0}`)
	const messages = `"messages":[{"role":"system","content":"Mission spam: Be short.\n\n1. One.\n2. Two."},` +
		`{"role":"user","content":"Judge a <b>"}]`
	const ticket = `"ticket_number":0,"ticket":{"group_id":"g","label":"yes","x":1.0},"epoch":0,"batch":0,"step":0`
	const params = `"temperature":0.5,"top_p":1,"max_tokens":9,"stop":["\n"]`
	want := []string{
		`{"id":"t0.e0.d0.s0",` + messages + `,` + ticket + `,"decode":0,"sample":0,"seed":268551046}`,
		`{"id":"t0.e0.d1.s0",` + messages + `,` + params + `,` + ticket + `,"decode":1,"sample":0,"seed":2147483646}`,
		`{"id":"t0.e0.d1.s1",` + messages + `,` + params + `,` + ticket + `,"decode":1,"sample":1,"seed":2147483647}`,
		`{"id":"t0.e0.d1.s2",` + messages + `,` + params + `,` + ticket + `,"decode":1,"sample":2,"seed":0}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("it is asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMessagesOfTicketStandInThePlaceOfThePrompt(t *testing.T) {
	t.Parallel()
	c := config.Run{Rollout: &config.Rollout{System: "S {guidance}", Prompt: "P {content}"}}
	l := memberLine(t, asked(t, c,
		`{"group_id":"g","mission":"spam","messages":[{"role":"user","content":"a"}, `+
			`{"role":"assistant","content":"b"}]}`)[0])
	if got := fmt.Sprint(l.Messages); got != "[{system S } {user a} {assistant b}]" {
		t.Errorf("the messages are %s", got)
	}
}

func TestPlaceholdersInTicketsAreText(t *testing.T) {
	t.Parallel()
	c := config.Run{Rollout: &config.Rollout{System: "{guidance}", Prompt: "{content}|{content} {other} {{mission}}"},
		Missions: []config.Mission{{Name: "m", Scaffold: "{content}", Entries: []string{"{mission}"}}}}
	l := memberLine(t, asked(t, c, `{"group_id":"g","content":"{guidance} {mission} {content} \\1 $1 %s"}`)[0])
	if want := "{content}\n\n1. {mission}"; l.Messages[0].Content != want {
		t.Errorf("the guidance is %q, want %q", l.Messages[0].Content, want)
	}
	const content = `{guidance} {mission} {content} \1 $1 %s`
	if want := content + "|" + content + " {other} {m}"; l.Messages[1].Content != want {
		t.Errorf("the prompt is %q, want %q", l.Messages[1].Content, want)
	}
}

// TestHalfASurrogatePairIsAskedAsItWasWritten checks that content that is no valid text
// reaches the model as the ticket has it.
func TestHalfASurrogatePairIsAskedAsItWasWritten(t *testing.T) {
	t.Parallel()
	got := asked(t, config.Run{}, `{"group_id":"g","mission":"spam","content":"a\ud83db\u2028"}`)[0]
	if !strings.Contains(got, `"content":"\n\na\ud83db\u2028"`) {
		t.Errorf("it is asked %s", got)
	}
}

// TestNoPartOfTheLabelIsInTheRequest checks every byte that a server is sent: of a ticket,
// only its content.
func TestNoPartOfTheLabelIsInTheRequest(t *testing.T) {
	t.Parallel()
	const sentinel = "SENTINEL"
	for name, ticket := range map[string]string{
		"content": `{"group_id":"SENTINEL1","mission":"spam","content":"c","label":"SENTINEL2",` +
			`"seed":"SENTINEL3","temperature":"SENTINEL4","tools":["SENTINEL5"]}`,
		"messages":    `{"label":"SENTINEL","group_id":"g","mission":"spam","messages":[{"role":"user","content":"c"}]}`,
		"placeholder": `{"group_id":"g","mission":"spam","content":"{label} {group_id} {ticket}","label":"SENTINEL"}`,
	} {
		c := config.Run{Rollout: &config.Rollout{System: "{guidance}", Prompt: "{content}{label}{ticket}"},
			Decodes: []config.Decode{{Samples: 2}, {Temperature: number(1)}}}
		for _, l := range asked(t, c, ticket) {
			if !strings.Contains(l, sentinel) {
				t.Fatalf("%s: the line %s does not carry the label", name, l)
			}
			it, err := dialect.Parse(dialect.Plain, []byte(l))
			if err != nil {
				t.Fatal(err)
			}
			body := it.Body(nil, "m", config.Sampling{}, identity.ContentID{}, 0)
			if strings.Contains(string(body), sentinel) {
				t.Errorf("%s: the request has it: %s", name, body)
			}
		}
	}
}

// TestSeedsDependOnTicketDecodeAndSampleAlone checks golden seeds, and that another
// guidance, another content and another place in the file change none of them.
func TestSeedsDependOnTicketDecodeAndSampleAlone(t *testing.T) {
	t.Parallel()
	c := config.Run{Decodes: []config.Decode{{Samples: 2}, {}}}
	seeds := func(c config.Run, ticket Ticket) string {
		return fmt.Sprint(seedOf(c, ticket.Key(), 0, 0), seedOf(c, ticket.Key(), 0, 1), seedOf(c, ticket.Key(), 1, 0))
	}
	g := Ticket{Group: "g", Label: "x"}
	const golden = "121544342 177972414 963582375"
	if got := seeds(c, g); got != golden {
		t.Errorf("the seeds are %s, not %s", got, golden)
	}
	guided := c
	guided.Missions = []config.Mission{{Name: "m", Entries: []string{"other"}}}
	if got := seeds(guided, Ticket{Group: "g", Label: "x", Content: "other", Mission: "m"}); got != golden {
		t.Errorf("with another guidance and content they are %s", got)
	}
	reseeded := c
	reseeded.Rollout = &config.Rollout{Seed: 1}
	all := map[int64]bool{}
	for _, s := range []struct {
		c config.Run
		t Ticket
	}{{c, g}, {reseeded, g}, {c, Ticket{Group: "g"}}, {c, Ticket{Group: "h", Label: "x"}}} {
		for d, sample := range [][2]int{{0, 0}, {0, 1}, {1, 0}} {
			seed := seedOf(s.c, s.t.Key(), sample[0], sample[1])
			if all[seed] || seed < 0 || seed > seedMask {
				t.Errorf("the seed %d of member %d of %+v is no new one", seed, d, s.t)
			}
			all[seed] = true
		}
	}
}

func TestBatchThatIsWrittenAgainHasTheSameBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{}, ticketLine("a", "x"), ticketLine("b", ""))
	s := first(f.m, f.book())
	first := f.write(s)
	if again := f.write(s); !slices.Equal(first, again) || len(first) != 2 {
		t.Errorf("the lines are\n%v, and then\n%v", first, again)
	}
	saved, err := ReadStage(t.Context(), f.blobs, testRun, 1)
	if err != nil || saved.To != 2 || saved.Input != 1 || saved.Tickets != 2 {
		t.Errorf("its stage is %+v, %v", saved, err)
	}
}
