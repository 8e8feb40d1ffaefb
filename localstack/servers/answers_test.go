package servers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestAnswers puts requests of all kinds to one server.
func TestAnswers(t *testing.T) {
	c := underTest(t)
	r := serve(t, c.server, Options{})
	for name, test := range map[string]func(*testing.T, capabilities, *Running){
		"example prompts":  answersExamplesAsTheBuiltInModel,
		"chats":            answersChatsAsTheBuiltInModel,
		"tools":            callsTools,
		"JSON schema":      keepsToASchema,
		"logprobs":         returnsLogprobs,
		"too long prompts": blamesThePromptThatIsTooLong,
	} {
		t.Run(name, func(t *testing.T) { test(t, c, r) })
	}
}

// answer is what the suite compares of a row.
type answer struct {
	ID           string
	Completion   string
	FinishReason string `json:"finish_reason"`
}

// answersExamplesAsTheBuiltInModel runs the example prompts greedily on the server and
// on the box.
func answersExamplesAsTheBuiltInModel(t *testing.T, c capabilities, r *Running) {
	input := examples(t, 1)
	ours := begin(t, job{engine: "tiny", run: greedy, input: input}).outcome()
	theirs := begin(t, job{engine: r.URL, run: greedy, input: input}).outcome()
	n := len(lines(input))
	ours.wantComplete(t, n)
	theirs.wantComplete(t, n)
	if equal := countEqual(t, ours, theirs); equal < c.equal {
		t.Errorf("%d of %d answers are the built-in model's, want at least %d", equal, n, c.equal)
	}
}

// countEqual counts the answers that are equal, and logs the others.
func countEqual(t *testing.T, ours, theirs outcome) (equal int) {
	t.Helper()
	for i := range ours.completions {
		a, b := decode[answer](t, ours.completions[i]), decode[answer](t, theirs.completions[i])
		if a == b {
			equal++
			continue
		}
		t.Logf("%s: the built-in model says\n%q (%s), the server\n%q (%s)", a.ID, a.Completion, a.FinishReason,
			b.Completion, b.FinishReason)
	}
	return equal
}

// answersChatsAsTheBuiltInModel checks the chat template that is exported: chats of
// several turns are answered as on the box.
func answersChatsAsTheBuiltInModel(t *testing.T, _ capabilities, r *Running) {
	const n = 24
	var input strings.Builder
	for i := range n {
		fmt.Fprintf(&input, `{"id":"c-%d","messages":[{"role":"system","content":"Speak as the prophets."},`+
			`{"role":"user","content":"Psa%d:1"},{"role":"assistant","content":"The LORD is my rock."},`+
			`{"role":"user","content":"And verse %d?"}]}`+"\n", i, i+1, i+2)
	}
	ours := begin(t, job{engine: "tiny", run: greedy, input: input.String()}).outcome()
	theirs := begin(t, job{engine: r.URL, run: greedy, input: input.String()}).outcome()
	ours.wantComplete(t, n)
	theirs.wantComplete(t, n)
	if equal := countEqual(t, ours, theirs); equal < n-1 {
		t.Errorf("%d of %d chats are answered as by the built-in model, want at least %d", equal, n, n-1)
	}
}

// short is the part of a run's config for answers of a schema.
const short = "[sampling]\ntemperature = 0\nmax_tokens = 128\n"

// schema is what structured answers and arguments must be. It leaves a model without
// much sense no room to go on for ever.
const schema = `{"type":"object","properties":{"verdict":{"enum":["good","evil"]},` +
	`"verse":{"type":"integer","minimum":1,"maximum":31}},"required":["verdict","verse"],"additionalProperties":false}`

// wantSchema checks a text against the schema.
func wantSchema(t *testing.T, text string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Errorf("the answer is not JSON: %v: %q", err, text)
		return
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("the answer %q is not of the schema: %v", text, err)
	}
}

// callsTools asks chats for a call of a tool.
func callsTools(t *testing.T, c capabilities, r *Running) {
	if c.toolChoice == "" {
		t.Skip("the server calls no tools for a model whose chat template has none")
	}
	const n = 12
	var input strings.Builder
	for i := range n {
		fmt.Fprintf(&input, `{"id":"t-%d","messages":[{"role":"user","content":"Judge Psa%d."}],"tool_choice":%s,`+
			`"tools":[{"type":"function","function":{"name":"judge","description":"Judges.","parameters":%s}}]}`+"\n",
			i, i+1, c.toolChoice, schema)
	}
	o := begin(t, job{engine: r.URL, run: short, input: input.String()}).outcome()
	o.wantComplete(t, n)
	for _, row := range o.completions {
		got := decode[struct {
			ID        string
			ToolCalls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}](t, row)
		if len(got.ToolCalls) == 0 {
			t.Errorf("%s calls no tool: %s", got.ID, row)
		}
		for _, call := range got.ToolCalls {
			if call.Function.Name != "judge" {
				t.Errorf("%s calls %q, want judge: %s", got.ID, call.Function.Name, row)
			}
			wantSchema(t, call.Function.Arguments)
		}
	}
}

// keepsToASchema asks for answers of a JSON schema.
func keepsToASchema(t *testing.T, _ capabilities, r *Running) {
	const n = 12
	var input strings.Builder
	for i := range n {
		fmt.Fprintf(&input, `{"id":"s-%d","messages":[{"role":"user","content":"Judge Psa%d."}],"response_format":`+
			`{"type":"json_schema","json_schema":{"name":"verdict","strict":true,"schema":%s}}}`+"\n", i, i+1, schema)
	}
	o := begin(t, job{engine: r.URL, run: short, input: input.String()}).outcome()
	o.wantComplete(t, n)
	for _, row := range o.completions {
		wantSchema(t, decode[answer](t, row).Completion)
	}
}

// returnsLogprobs asks prompts and chats for the probabilities of their tokens.
func returnsLogprobs(t *testing.T, _ capabilities, r *Running) {
	const n = 12
	var input strings.Builder
	for i := range n {
		if i%2 == 0 {
			fmt.Fprintf(&input, `{"id":"l-%d","prompt":"Psa%d:1 The","logprobs":2}`+"\n", i, i+1)
		} else {
			fmt.Fprintf(&input, `{"id":"l-%d","messages":[{"role":"user","content":"Psa%d:1"}],`+
				`"logprobs":true,"top_logprobs":2}`+"\n", i, i+1)
		}
	}
	const few = "[sampling]\ntemperature = 0\nmax_tokens = 8\n"
	o := begin(t, job{engine: r.URL, run: few, input: input.String()}).outcome()
	o.wantComplete(t, n)
	for _, row := range o.completions {
		got := decode[struct {
			ID       string
			Logprobs struct {
				Tokens  []float64 `json:"token_logprobs"` // of prompts
				Content []struct {
					Logprob float64
					Top     []struct{ Logprob float64 } `json:"top_logprobs"`
				} // of chats, and of llama.cpp's prompts
			}
			Usage struct {
				Completion int `json:"completion_tokens"`
			}
		}](t, row)
		each := got.Logprobs.Tokens
		for _, token := range got.Logprobs.Content {
			each = append(each, token.Logprob)
			if len(token.Top) != 2 || math.Abs(token.Top[0].Logprob-token.Logprob) > 1e-3 {
				t.Errorf("%s: a greedy token is not the likeliest of two: %+v", got.ID, token)
			}
		}
		// The last token may be the one that ends the answer, which has no text.
		if len(each) == 0 || len(each) < got.Usage.Completion-1 || slices.Max(each) > 0 {
			t.Errorf("%s has %d tokens and the logprobs %v: %s", got.ID, got.Usage.Completion, each, row)
		}
	}
}

// blamesThePromptThatIsTooLong puts a prompt among others that does not fit.
func blamesThePromptThatIsTooLong(t *testing.T, c capabilities, r *Running) {
	const n, long = 20, 7
	var input strings.Builder
	for i := range n {
		prompt := fmt.Sprintf("Psa%d:1 The", i+1)
		if i == long {
			prompt = strings.Repeat("and it came to pass, ", Context/3)
		}
		fmt.Fprintf(&input, `{"id":"p-%d","prompt":%q}`+"\n", i, prompt)
	}
	o := begin(t, job{engine: r.URL, run: greedy, input: input.String()}).outcome()
	if len(o.completions) != n-1 || len(o.errors) != 1 {
		t.Fatalf("%d answers and %d errors, want %d and 1: %s", len(o.completions), len(o.errors), n-1, o.errors)
	}
	row := decode[struct{ ID, Class, Error string }](t, o.errors[0])
	if row.ID != fmt.Sprintf("p-%d", long) || row.Class != "too_long" || !strings.Contains(row.Error, c.tooLong) {
		t.Errorf("the error row is %s, want p-%d, class too_long, with the server's words %q", o.errors[0], long, c.tooLong)
	}
}

// TestEmbeddings compares rows of embeddings with the server's own answers.
func TestEmbeddings(t *testing.T) {
	c := underTest(t)
	r := serve(t, c.server, Options{Embeddings: true})
	texts := []string{"The LORD is my shepherd;", "The light of the Sun", "And it came to pass", "Prisms"}
	var input strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&input, `{"id":"e-%d","prompt":%q}`+"\n", i, text)
	}
	o := begin(t, job{engine: r.URL, run: "[request]\nendpoint = \"embeddings\"\n", input: input.String()}).outcome()
	o.wantComplete(t, len(texts))
	type embeddings struct {
		Data []struct{ Embedding []float64 }
	}
	for i, row := range o.completions {
		got := decode[struct{ Response embeddings }](t, row).Response
		want := decode[embeddings](t, post(t, r.URL+"/embeddings", map[string]any{"model": ModelName, "input": texts[i]}))
		if len(got.Data) != 1 || len(want.Data) != 1 || len(got.Data[0].Embedding) != len(want.Data[0].Embedding) ||
			len(got.Data[0].Embedding) == 0 {
			t.Errorf("the row is %.300s, want one vector as of %+v", row, want)
			continue
		}
		for k, v := range want.Data[0].Embedding {
			if math.Abs(v-got.Data[0].Embedding[k]) > 1e-3 {
				t.Errorf("value %d of row %d is %v, want %v", k, i, got.Data[0].Embedding[k], v)
			}
		}
	}
}

// post sends a request to the server and returns the body of its answer.
func post(t *testing.T, url string, body any) string {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, resp.Status, text, err)
	}
	return string(text)
}
