package guidance

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rollout/shared/text"
)

// MaxAnswer is the most bytes of a model's answer that are read.
const MaxAnswer = 64 << 10

// decodeStrict decodes an answer into v, a pointer to a structure. The answer is one
// JSON object with no other members than v has, each of its type. White space, and one
// fence of three backticks around the object, are allowed, because models write them
// whatever they are told. Its errors are *Refused.
func decodeStrict(answer []byte, v any) error {
	if len(answer) > MaxAnswer {
		return refuse(TooLarge, "the answer has %d bytes, and at most %d are read", len(answer), MaxAnswer)
	}
	object, err := unfence(answer)
	if err != nil {
		return err
	}
	if len(object) == 0 || object[0] != '{' {
		return refuse(NotJSON, "the answer begins with %.40q: it must be one JSON object and nothing else", object)
	}
	return explain(json.Unmarshal(object, v, json.RejectUnknownMembers(true)))
}

// unfence returns the answer without white space and the fence around it.
//
//	```json
//	{…}
//	```
func unfence(answer []byte) ([]byte, error) {
	const fence = "```"
	inner, fenced := bytes.CutPrefix(bytes.TrimSpace(answer), []byte(fence))
	if !fenced {
		return inner, nil
	}
	inner, closed := bytes.CutSuffix(inner, []byte(fence))
	language, object, _ := bytes.Cut(inner, []byte("\n"))
	if name := strings.TrimSpace(string(language)); !closed || name != "" && !strings.EqualFold(name, "json") {
		return nil, refuse(NotJSON, "the answer begins with a fence that is not that of one JSON object")
	}
	return bytes.TrimSpace(object), nil
}

// explain returns the *Refused for an error of the decoder.
func explain(err error) error {
	if err == nil {
		return nil
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		what := text.Truncate(strings.ToValidUTF8(err.Error(), "�"), maxMessage, "…")
		return refuse(NotJSON, "the answer is not one JSON object: %s", what)
	case !errors.Is(semantic.Err, json.ErrUnknownName):
		return refuse(WrongForm, "the value of %.80q has the wrong type", semantic.JSONPointer)
	case namesScaffold(semantic.JSONPointer):
		return refuse(TouchesScaffold, "the answer has the member %.40q: the scaffold can't be changed",
			semantic.JSONPointer.LastToken())
	}
	return refuse(WrongForm, "the answer has the unknown member %.40q: leave it out", semantic.JSONPointer.LastToken())
}

// namesScaffold reports whether a member is meant to change the scaffold.
func namesScaffold(p jsontext.Pointer) bool {
	return strings.Contains(foldCase(p.LastToken()), "scaffold")
}
