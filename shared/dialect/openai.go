package dialect

import (
	"fmt"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// parseOpenAI reads {"custom_id", "method", "url", "body"}. Except for model, n, seed and
// stream, the body goes to the server as written.
func (it *Item) parseOpenAI(ms []jsonl.Member) error {
	var method, url []byte
	var body jsonl.Member
	for _, m := range ms {
		switch string(m.Name) {
		case "custom_id":
		case "method":
			method = m.Value
		case "url":
			url = m.Value
		case "body":
			body = m
		default:
			it.extra = append(it.extra, m)
		}
	}
	switch {
	case !it.HasID:
		return lineError("give every line a string of its own", "the line has no custom_id")
	case method != nil && !is(method, "POST") && !is(method, "post"):
		return lineError(`write "method": "POST"`, "method is %s, not POST", clip(method))
	case url == nil:
		return lineError("write /v1/chat/completions or /v1/completions", "the line has no url")
	case body.Value == nil:
		return lineError("give the request as body", "the line has no body")
	}
	if it.Endpoint = endpointOf(url); it.Endpoint == "" {
		return lineError("write /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/rerank or "+
			"/v1/score",
			"the url %s is not served", clip(url))
	}
	return it.openAIBody(body)
}

// openAIPaths are the ends of the urls of the endpoints. One that ends as another does
// comes first.
var openAIPaths = [...]struct {
	path string
	e    Endpoint
}{
	{"/chat/completions", Chat}, {"/completions", Completion}, {"/responses", Responses},
	{"/embeddings", Embeddings}, {"/rerank", Rerank}, {"/score", Score},
}

// URLOf returns OpenAI's url of an endpoint. Example: "/v1/chat/completions".
func URLOf(e Endpoint) string {
	for _, known := range openAIPaths {
		if known.e == e {
			return "/v1" + known.path
		}
	}
	return ""
}

// endpointOf returns the endpoint of a line's url: OpenAI's, Azure's without the
// version, or either after the name of a server. It is "" for any other.
func endpointOf(url []byte) Endpoint {
	text, ok := jsonl.Unquote(nil, url)
	if !ok {
		return ""
	}
	path := string(text)
	if _, rest, full := strings.Cut(path, "://"); full {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimSuffix(path, "/")
	for _, known := range openAIPaths {
		before, ok := strings.CutSuffix(path, known.path)
		if ok && (before == "" || strings.HasSuffix(before, "/v1") || before == "/v2" ||
			strings.HasPrefix(before, "/openai/deployments/")) {
			return known.e
		}
	}
	return ""
}

func (it *Item) openAIBody(body jsonl.Member) error {
	it.key, it.Request = "body", compact(body)
	var err error
	if it.body, err = objectOf("body", it.Request); err != nil {
		return err
	}
	var prompt, messages []byte
	has := map[string]bool{}
	for _, m := range it.body {
		switch name := string(m.Name); name {
		case "input", "query", "documents":
			has[name] = true
		case "prompt":
			prompt = m.Value
		case "messages":
			messages = m.Value
		case "n":
			it.N, err = answers("body.n", m.Value)
		case "model":
			if m.Value[0] != '"' {
				err = wrongType("body.model", "a string", m.Value)
			}
		case "seed":
			err = checkSeed("body.seed", m.Value)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case it.Endpoint == Responses && !has["input"], it.Endpoint == Embeddings && !has["input"]:
		return lineError("give the text as body.input", "body has no input")
	case it.Endpoint == Rerank && !(has["query"] && has["documents"]):
		return lineError("give body.query and body.documents", "body lacks the query or the documents")
	case !it.Endpoint.Samples():
		return nil
	case it.Endpoint == Chat && messages == nil:
		return lineError("give the chat as body.messages", "body has no messages")
	case it.Endpoint == Chat:
		return checkMessages("body.messages", messages)
	case prompt == nil:
		return lineError("give the text as body.prompt", "body has no prompt")
	}
	return checkPrompt(prompt)
}

// checkPrompt requires one prompt: a text, or token ids.
func checkPrompt(raw []byte) error {
	if raw[0] == '"' {
		return nil
	}
	const want = "a string or an array of token ids"
	if raw[0] != '[' {
		return wrongType("body.prompt", want, raw)
	}
	empty := true
	a := jsonl.ReadKnownArray(raw)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		empty = false
		if !isNumber(e) {
			return lineError("give each prompt a line of its own", "body.prompt is an array of more than token ids")
		}
	}
	if empty {
		return lineError("make it "+want, "body.prompt is empty")
	}
	return nil
}

// answers reads a number of answers. A null returns 0, as a missing member does.
func answers(what string, raw []byte) (int, error) {
	if string(raw) == "null" {
		return 0, nil
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 || n > maxAnswers {
		return 0, lineError(fmt.Sprintf("ask for 1 to %d answers", maxAnswers),
			"%s is %s, not a number of answers", what, clip(raw))
	}
	return n, nil
}

func checkSeed(what string, raw []byte) error {
	if !isNumber(raw) && raw[0] != 'n' {
		return wrongType(what, "a number", raw)
	}
	return nil
}

// is reports whether raw is the string s.
func is(raw []byte, s string) bool {
	text, ok := jsonl.Unquote(nil, raw)
	return ok && string(text) == s
}

// CheckModel rejects a line that names another model than the run's, unless the run's
// [request] accepts it. A line without a model gets the run's model.
func (it *Item) CheckModel(uri string, r *config.Request) error {
	if it.dialect != OpenAI {
		return nil
	}
	for _, m := range it.body {
		if string(m.Name) != "model" || is(m.Value, uri) {
			continue
		}
		if _, ok := acceptedModel(m.Value, r); !ok {
			return &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
				Err:    fmt.Errorf("the line asks for the model %s, the run's model is %q", clip(m.Value), uri),
				Remedy: "leave body.model out, submit the line in a run of that model, or accept it by request.body_model"}
		}
	}
	return nil
}

// acceptedModel returns the name that is sent for a model in a line: "" for the run's.
// It reports whether the run accepts the model.
func acceptedModel(model []byte, r *config.Request) (name string, ok bool) {
	if r == nil || len(r.BodyModel) == 0 {
		return "", false
	}
	text, _ := jsonl.Unquote(nil, model)
	if name, ok = r.BodyModel[string(text)]; ok {
		return name, true
	}
	name, ok = r.BodyModel[config.AnyModel]
	return name, ok
}
