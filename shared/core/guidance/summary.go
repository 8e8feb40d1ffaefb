package guidance

// Summary is what the first stage of a reflection finds out about one ticket.
type Summary struct {
	Summary string `json:"summary"` // what was answered, and why; at most MaxSummary bytes
	Lesson  string `json:"lesson"`  // the rule that would have helped; "" if none; at most MaxLesson bytes
}

// Bounds of a Summary, in bytes.
const (
	MaxSummary = 2000
	MaxLesson  = 600
)

// ParseSummary reads what a model answered to SummaryPrompt. Texts become one line.
// Errors are *Refused.
func ParseSummary(answer []byte) (Summary, error) {
	var wire struct {
		Summary *string `json:"summary"`
		Lesson  *string `json:"lesson"`
	}
	if err := decodeStrict(answer, &wire); err != nil {
		return Summary{}, err
	}
	if wire.Summary == nil || wire.Lesson == nil {
		return Summary{}, refuse(WrongForm, `the answer must have "summary" and "lesson"`)
	}
	summary, err := bounded("summary", *wire.Summary, MaxSummary)
	if err != nil {
		return Summary{}, err
	}
	if summary == "" {
		return Summary{}, refuse(EmptyText, `"summary" is empty`)
	}
	lesson, err := bounded("lesson", *wire.Lesson, MaxLesson)
	if err != nil {
		return Summary{}, err
	}
	return Summary{summary, lesson}, nil
}

// bounded returns a normalised text, which may be empty, of at most limit bytes.
func bounded(name, s string, limit int) (string, error) {
	s, bad := normalize(s)
	switch {
	case bad != nil && bad.Refusal != EmptyText:
		return "", refuse(bad.Refusal, "%q: %s", name, bad.Message)
	case len(s) > limit:
		return "", refuse(TooLarge, "%q has %d bytes, and at most %d are allowed", name, len(s), limit)
	}
	return s, nil
}
