package guidance

import "fmt"

// Refusal is the reason why a model's answer, a plan or a guidance was refused, as
// artifacts and events show it. The set is closed.
type Refusal string

// The refusals.
const (
	// TooLarge: the answer, or a text in it, has more bytes than are read.
	TooLarge Refusal = "too_large"
	// NotJSON: the answer is not one JSON object, or has a name twice.
	NotJSON Refusal = "not_json"
	// WrongForm: a member is unknown, missing, or of another type, or an operation
	// does not have the members that its kind needs.
	WrongForm Refusal = "wrong_form"
	// ControlCharacters: a text has control characters, or invisible ones that change
	// how it reads.
	ControlCharacters Refusal = "control_characters"
	EmptyText         Refusal = "empty_text"
	NoReason          Refusal = "no_reason"
	NoEvidence        Refusal = "no_evidence"
	// UnknownEvidence: what an operation names as evidence is not a ticket of the batch.
	UnknownEvidence   Refusal = "unknown_evidence"
	TooManyOperations Refusal = "too_many_operations"
	// Conflict: two operations change one entry, or one names it twice.
	Conflict    Refusal = "conflict"
	NoSuchEntry Refusal = "no_such_entry"
	// TouchesScaffold: the plan has a member for the scaffold, or a text repeats a line
	// of it.
	TouchesScaffold Refusal = "scaffold"
	CopiesTicket    Refusal = "copies_ticket"
	EntryTooLong    Refusal = "entry_too_long"
	TooManyEntries  Refusal = "too_many_entries"
	TooManyTokens   Refusal = "too_many_tokens"
	// Empties: the plan leaves no entry.
	Empties Refusal = "empties"
	// NoChange: the plan has operations, and the entries are the same after them.
	NoChange Refusal = "no_change"
)

// Refused is the error of whatever was refused. Its message is bounded: it quotes at
// most a few words of the answer.
type Refused struct {
	Refusal Refusal
	Message string // says what is wrong with what, and what would be right
}

// Error returns "refusal: message".
func (r *Refused) Error() string { return string(r.Refusal) + ": " + r.Message }

// maxMessage bounds what a message repeats of another error, in bytes.
const maxMessage = 300

func refuse(r Refusal, format string, args ...any) error {
	return &Refused{Refusal: r, Message: fmt.Sprintf(format, args...)}
}
