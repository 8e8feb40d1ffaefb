package dialect

import (
	"bytes"
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
	var value, values []byte // of one answer, and of all if there are several
	one, all := answerNames(d)
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
	case d == Bedrock:
		texts, err = listOf(value, values, func(m struct{ Content []textPart }) string { return textOf(m.Content) })
	case values == nil:
		texts = make([]string, 1)
		err = json.Unmarshal(value, &texts[0])
	default:
		texts, err = listOf(nil, values, func(a struct{ Completion string }) string { return a.Completion })
	}
	return texts, fault.WithKind(fault.Corrupt, err, "read the answers of a row")
}

// answerNames returns the names of the members with the first answer and with all of them.
func answerNames(d Name) (one, all string) {
	switch d {
	case OpenAI, Vertex:
		return "response", ""
	case Bedrock:
		return "modelOutput", "modelOutputs"
	}
	return "completion", "completions"
}

// listOf reads the list, or one value if there is no list, and returns the text of each.
func listOf[T any](one, list []byte, text func(T) string) (texts []string, err error) {
	if list == nil {
		list = slices.Concat([]byte{'['}, one, []byte{']'})
	}
	var all []T
	err = json.Unmarshal(list, &all)
	for _, a := range all {
		texts = append(texts, text(a))
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
