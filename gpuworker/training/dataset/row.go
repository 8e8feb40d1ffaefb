package dataset

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Message is a turn of a chat.
type Message struct {
	Role    string `json:"role"` // system, developer, user or assistant
	Content string `json:"content"`
}

// Example is a row of supervised fine-tuning: a prompt, as a text or a chat, and
// the answer to learn.
type Example struct {
	Prompt string    // the prompt if Chat is nil
	Chat   []Message // the turns before the answer; nil if the prompt is a text
	Answer string    // not empty
}

// Pair is a row of reward model training. The answers are not empty and not equal.
type Pair struct {
	Prompt, Chosen, Rejected string
}

// ParseExample parses a row with "prompt" and "completion", or with "messages",
// whose last and only assistant turn is the answer. It ignores other fields.
func ParseExample(line []byte) (Example, error) {
	var row struct {
		Prompt     *string   `json:"prompt"`
		Completion *string   `json:"completion"`
		Messages   []Message `json:"messages"`
	}
	if err := decode(line, &row); err != nil {
		return Example{}, err
	}
	switch {
	case row.Messages != nil && (row.Prompt != nil || row.Completion != nil):
		return Example{}, errors.New("the row has messages and also prompt or completion: remove one of the two")
	case row.Messages != nil:
		return chat(row.Messages)
	case row.Prompt == nil && row.Completion == nil:
		return Example{}, errors.New(`the row has neither "prompt" and "completion" nor "messages"`)
	case row.Prompt == nil:
		return Example{}, missing("prompt")
	case row.Completion == nil:
		return Example{}, missing("completion")
	case *row.Completion == "":
		return Example{}, errors.New("completion is empty: there is nothing to learn")
	}
	return Example{Prompt: *row.Prompt, Answer: *row.Completion}, nil
}

// chat returns the example of a row with messages.
func chat(messages []Message) (Example, error) {
	answers := 0
	for i, m := range messages {
		switch m.Role {
		case "assistant":
			answers++
		case "system", "developer", "user":
		default:
			return Example{}, fmt.Errorf("messages[%d].role is %.40q: it must be system, user or assistant", i, m.Role)
		}
	}
	switch n := len(messages) - 1; {
	case answers == 0:
		return Example{}, errors.New("messages has no assistant turn: there is nothing to learn")
	case answers > 1:
		return Example{}, fmt.Errorf("messages has %d assistant turns: write a row for each", answers)
	case messages[n].Role != "assistant":
		return Example{}, errors.New("messages must end with the assistant turn: remove what follows it")
	case messages[n].Content == "":
		return Example{}, errors.New("the assistant turn is empty: there is nothing to learn")
	default:
		return Example{Chat: messages[:n:n], Answer: messages[n].Content}, nil
	}
}

// ParsePair parses a row with "prompt", "chosen" and "rejected". It ignores other
// fields.
func ParsePair(line []byte) (Pair, error) {
	var row struct {
		Prompt   *string `json:"prompt"`
		Chosen   *string `json:"chosen"`
		Rejected *string `json:"rejected"`
	}
	if err := decode(line, &row); err != nil {
		return Pair{}, err
	}
	switch {
	case row.Prompt == nil:
		return Pair{}, missing("prompt")
	case row.Chosen == nil:
		return Pair{}, missing("chosen")
	case row.Rejected == nil:
		return Pair{}, missing("rejected")
	case *row.Chosen == "" || *row.Rejected == "":
		return Pair{}, errors.New("chosen and rejected must not be empty")
	case *row.Chosen == *row.Rejected:
		return Pair{}, errors.New("chosen and rejected are the same: there is nothing to prefer")
	}
	return Pair{*row.Prompt, *row.Chosen, *row.Rejected}, nil
}

func missing(field string) error { return fmt.Errorf("%q is missing", field) }

// decode decodes a JSON object strictly: duplicate names and invalid UTF-8 are
// errors.
func decode(line []byte, into any) error {
	err := json.Unmarshal(line, into)
	if err == nil {
		return nil
	}
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case !utf8.Valid(line):
		return errors.New("the row is not valid UTF-8")
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return fmt.Errorf("%s must not be %s", semantic.JSONPointer, kinds[semantic.JSONKind])
	case errors.As(err, &semantic):
		return errors.New("the row is not a JSON object")
	case errors.As(err, &syntactic):
		return fmt.Errorf("the row is not JSON: %w, at byte %d", syntactic.Err, syntactic.ByteOffset+1)
	}
	return fmt.Errorf("the row is not JSON: %w", err)
}

// kinds are the names of JSON kinds in messages.
var kinds = map[jsontext.Kind]string{
	'n': "null", 'f': "a boolean", 't': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "a list",
}
