package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// textPart is a part of a content, in the formats of all dialects.
type textPart struct {
	Type    string // "" in the vertex dialect
	Text    string
	Thought bool // of the vertex dialect: reasoning
}

// ReadAnswers returns the texts of the answers in an output row that AppendOutput wrote,
// in their order: what Answer.Text was. An answer without a text, such as an embedding,
// is "". A row that is not an output row is Corrupt.
func ReadAnswers(d Name, row []byte) (texts []string, err error) {
	if d == Plain {
		answers, err := ReadCompletions(row)
		for _, a := range answers {
			texts = append(texts, a.Text)
		}
		return texts, err
	}
	var value, values []byte // of one answer, and of all if there are several
	one, all := "response", ""
	if d == Bedrock {
		one, all = "modelOutput", "modelOutputs"
	}
	o := jsonl.ReadObject(row) // a line's own members may differ from these in upper and lower case alone
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		switch string(m.Name) {
		case one:
			value = m.Value
		case all:
			values = m.Value
		}
	}
	switch {
	case o.Err() != nil:
		err = o.Err()
	case value == nil || string(value) == "null":
		err = fault.New(fault.Corrupt, "it has no answer")
	case d == OpenAI:
		texts, err = openAIAnswers(value)
	case d == Vertex:
		texts, err = vertexAnswers(value)
	default:
		texts, err = bedrockAnswers(value, values)
	}
	return texts, fault.WithKind(fault.Corrupt, err, "read the answers of a row")
}

// ReadCompletions returns the answers in an output row of the plain dialect that
// AppendOutput wrote, in their order: the text and the finish reason of each. A row that
// is not an output row is Corrupt.
func ReadCompletions(row []byte) (answers []Answer, err error) {
	type completion struct {
		Completion   *string
		FinishReason string `json:"finish_reason"`
	}
	var one completion
	var all []completion
	o := jsonl.ReadObject(row)
	for m, ok := o.Next(); ok && err == nil; m, ok = o.Next() {
		switch string(m.Name) {
		case "completion":
			err = json.Unmarshal(m.Value, &one.Completion)
		case "finish_reason":
			err = json.Unmarshal(m.Value, &one.FinishReason)
		case "completions":
			err = json.Unmarshal(m.Value, &all)
		}
	}
	if len(all) == 0 {
		all = []completion{one}
	}
	for _, c := range all {
		if err = cmp.Or(err, o.Err()); err == nil && c.Completion == nil {
			err = fault.New(fault.Corrupt, "it has no answer")
		}
		if err != nil {
			return nil, fault.WithKind(fault.Corrupt, err, "read the answers of a row")
		}
		answers = append(answers, Answer{Text: *c.Completion, FinishReason: c.FinishReason})
	}
	return answers, nil
}

// CutReasons are the finish reasons of answers that were cut because their tokens were
// used up.
func CutReasons() []string {
	return []string{"length", "max_tokens", "model_length", "max_output_tokens"}
}

// bedrockAnswers reads the answers in values, or one value if there are no values.
func bedrockAnswers(value, values []byte) (texts []string, err error) {
	if values == nil {
		values = slices.Concat([]byte{'['}, value, []byte{']'})
	}
	var all []struct{ Content []textPart }
	err = json.Unmarshal(values, &all)
	for _, a := range all {
		texts = append(texts, textOf(a.Content))
	}
	return texts, err
}

func vertexAnswers(response []byte) (texts []string, err error) {
	var r struct {
		Candidates []struct{ Content struct{ Parts []textPart } }
	}
	err = json.Unmarshal(response, &r)
	for _, c := range r.Candidates {
		texts = append(texts, textOf(c.Content.Parts))
	}
	return texts, err
}

// openAIAnswers reads a chat, a completion, or what another endpoint answered: of
// responses the texts of the output, and of others none.
func openAIAnswers(response []byte) (texts []string, err error) {
	var r struct {
		Body struct {
			Choices []struct {
				Text    string
				Message struct{ Content json.RawMessage }
			}
			Output json.RawMessage
		}
	}
	if err := json.Unmarshal(response, &r); err != nil {
		return nil, err
	}
	body := r.Body
	for _, c := range body.Choices {
		text := c.Text
		if bytes.HasPrefix(c.Message.Content, []byte{'"'}) {
			if err := json.Unmarshal(c.Message.Content, &text); err != nil {
				return nil, err
			}
		}
		texts = append(texts, text)
	}
	if len(texts) > 0 {
		return texts, nil
	}
	var output []struct {
		Type    string
		Content []textPart
	}
	if bytes.HasPrefix(body.Output, []byte{'['}) {
		if err := json.Unmarshal(body.Output, &output); err != nil {
			return nil, err
		}
	}
	text := ""
	for _, o := range output {
		if o.Type == "message" {
			text += textOf(o.Content)
		}
	}
	return []string{text}, nil
}

// textOf joins the parts that are text.
func textOf(parts []textPart) (text string) {
	for _, p := range parts {
		if !p.Thought && (p.Type == "" || p.Type == "text" || p.Type == "output_text") {
			text += p.Text
		}
	}
	return text
}
