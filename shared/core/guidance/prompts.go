package guidance

import (
	"fmt"
	"strings"

	"rollout/shared/text"
)

// Message is a turn of a chat, as OpenAI-compatible servers take it.
type Message struct {
	Role    string `json:"role"` // "system" or "user"
	Content string `json:"content"`
}

// Bounds of what a reflection prompt shows, in bytes and in numbers. What is longer is
// cut, with "…" at its end, and what is too much is left out from the end: reflection
// looks at examples, and a prompt must fit. Prompts that answer tickets are never cut.
const (
	maxShownTicket    = 4 << 10
	maxShownAnswer    = 1 << 10
	MaxShownAnswers   = 16
	maxShownScaffold  = 4 << 10
	maxShownReason    = 300
	maxShownEvidence  = 8
	maxShownNote      = 500 // labels, missions, and why a ticket was chosen
	MaxShownReports   = 32
	MaxShownProposals = 64
)

// Case is a ticket with the answers that it got under the guidance.
type Case struct {
	Content string   `json:"ticket"`
	Answers []Answer `json:"answers"`
	Label   string   `json:"right_answer,omitempty"` // the known verdict; "" if there is none
	Why     string   `json:"chosen_because"`         // Example: "the majority contradicts the label"
}

// Answer is one answer, or several that say the same.
type Answer struct {
	Text    string `json:"answer"`
	Outcome string `json:"outcome"` // Example: "right", "wrong", "unreadable"
	Times   int    `json:"times"`   // how many samples answered so
}

// Report is the Summary of a ticket, with the key by which evidence names it.
type Report struct {
	Ticket string `json:"ticket"`
	Summary
}

// entryView is an entry as reflection sees it.
type entryView struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
	Hits   int    `json:"hits"`
	Misses int    `json:"misses"`
}

// guidanceView is what every reflection prompt shows of the guidance.
type guidanceView struct {
	Mission  string      `json:"mission"`
	Scaffold string      `json:"scaffold"`
	Entries  []entryView `json:"entries"`
}

func (g Guidance) view() guidanceView {
	v := guidanceView{Mission: cut(g.Mission, maxShownNote), Scaffold: cut(g.Scaffold, maxShownScaffold),
		Entries: []entryView{}}
	for i, e := range g.Entries {
		v.Entries = append(v.Entries, entryView{i + 1, e.Text, e.Hits, e.Misses})
	}
	return v
}

// SummaryPrompt asks what can be learned from one ticket. ParseSummary reads the answer.
func SummaryPrompt(g Guidance, c Case) []Message {
	c.Content, c.Label, c.Why = cut(c.Content, maxShownTicket), cut(c.Label, maxShownNote), cut(c.Why, maxShownNote)
	answers := []Answer{}
	for _, a := range c.Answers[:min(len(c.Answers), MaxShownAnswers)] {
		a.Text, a.Outcome = cut(a.Text, maxShownAnswer), cut(a.Outcome, maxShownNote)
		answers = append(answers, a)
	}
	c.Answers = answers
	return prompt(fmt.Sprintf(summaryTask, MaxSummary, MaxLesson), struct {
		Guidance guidanceView `json:"guidance"`
		Case
	}{g.view(), c})
}

// CritiquePrompt asks for operations that would have helped with the reported tickets.
// It shows the first MaxShownReports of them. ParseProposals reads the answer.
func CritiquePrompt(g Guidance, lim Limits, reports []Report) []Message {
	shown := append([]Report{}, reports[:min(len(reports), MaxShownReports)]...)
	for i, r := range shown {
		shown[i].Summary = Summary{cut(r.Summary.Summary, MaxSummary), cut(r.Lesson, MaxLesson)}
	}
	return prompt(critiqueTask+g.rules(lim), struct {
		Guidance guidanceView `json:"guidance"`
		Reports  []Report     `json:"reports"`
	}{g.view(), shown})
}

// ConsolidatePrompt asks for one plan out of the operations that were proposed. It
// shows the first MaxShownProposals of them. ParsePlan reads the answer.
func ConsolidatePrompt(g Guidance, lim Limits, proposals []Operation) []Message {
	shown := append([]Operation{}, proposals[:min(len(proposals), MaxShownProposals)]...)
	for i, op := range shown {
		shown[i].Reason = cut(op.Reason, maxShownReason)
		shown[i].Evidence = op.Evidence[:min(len(op.Evidence), maxShownEvidence)]
	}
	return prompt(consolidateTask+g.rules(lim), struct {
		Guidance  guidanceView `json:"guidance"`
		Proposals []Operation  `json:"proposals"`
	}{g.view(), shown})
}

// prompt returns the messages of a task on data. Data is JSON, so that no text in it
// can end the string it stands in, and be taken for a part of the task.
func prompt(task string, data any) []Message {
	return []Message{
		{Role: "system", Content: strings.TrimSpace(task)},
		{Role: "user", Content: dataHead + string(encode(data))},
	}
}

// cut shortens a text for a prompt.
func cut(s string, limit int) string { return text.Truncate(s, limit, "…") }
