package clerk

import (
	"fmt"
	"regexp"
	"strings"
)

// cancellation is a ticket about a booking: of a train seat or a hotel room, 3 to 13 days
// ahead. Each kind has a rule. Stated alone, a rule is applied to the other kind as well,
// where it is wrong: guidance with one of them is right on one half of the tickets and
// wrong on the other, and no better than guessing. Guidance with both is right on all.
type cancellation struct{ room bool }

var cancelled = regexp.MustCompile(`^A guest cancelled a (train seat|hotel room) (\d+) days ahead \(booked by (\w+)\)$`)

func readCancellation(ticket string) (c cancellation, ok bool) {
	m := cancelled.FindStringSubmatch(strings.TrimSpace(ticket))
	if m == nil {
		return c, false
	}
	return cancellation{room: m[1] == "hotel room"}, true
}

// CancellationRules returns the texts of the rules, as entries of guidance.
func CancellationRules() []string {
	return []string{"Seats on trains: refund from three days ahead.", "Rooms in hotels: refund from fourteen days ahead."}
}

// rule returns the text of the rule that decides the ticket.
func (c cancellation) rule() string {
	if c.room {
		return CancellationRules()[1]
	}
	return CancellationRules()[0]
}

func (c cancellation) verdict() string {
	if c.room {
		return Refuse
	}
	return Refund
}

// judge answers the ticket under the guidance in the system message.
func (c cancellation) judge(guidance, ticket, seed string) string {
	other := cancellation{room: !c.room}
	verdict, entry, sure := c.verdict(), stated(guidance, c.rule()), Known
	if entry == 0 {
		verdict, entry = other.verdict(), stated(guidance, other.rule())
	}
	why := fmt.Sprintf("Entry [%d] decides this.", entry)
	if entry == 0 {
		verdict, sure, why = c.verdict(), Guessed, "No entry decides this."
	}
	if draw(ticket, seed) >= sure {
		verdict = map[string]string{Refund: Refuse, Refuse: Refund}[verdict]
	}
	return why + "\nVerdict: " + verdict
}

// Cancellation returns the content and the label of the n-th ticket about a booking.
func Cancellation(n int) (content, label string) {
	c := cancellation{room: n%2 == 1}
	what := map[bool]string{false: "train seat", true: "hotel room"}[c.room]
	by := []string{"phone", "mail", "app", "desk", "agency"}[n/22%5]
	return fmt.Sprintf("A guest cancelled a %s %d days ahead (booked by %s%d)", what, 3+n/2%11, by, n), c.verdict()
}
