package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/sampling"
)

// exchange is a chat or completion request that is being answered.
type exchange struct {
	*Server
	chat        bool
	id          string // Example: "cmpl-0123456789abcdef"
	created     int64  // Unix time in seconds
	req         openaireq.Request
	prompts     [][]int32
	generations []tiny.GenerationRequest // one for each choice: n for the first prompt, n for the second, …
}

// complete answers a chat request or a completion request.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	x, err := s.parseExchange(r, chat)
	if err != nil {
		writeFault(w, err)
		return
	}
	if x.req.Stream {
		x.stream(r.Context(), w)
	} else {
		x.respond(r.Context(), w)
	}
}

// parseExchange reads and checks a request.
func (s *Server) parseExchange(r *http.Request, chat bool) (*exchange, error) {
	body, err := read(r)
	if err != nil {
		return nil, err
	}
	e := s.cfg.Engine
	x := &exchange{Server: s, chat: chat, created: s.cfg.Clock.Now().Unix()}
	if chat {
		x.id = fmt.Sprintf("chatcmpl-%016x", s.cfg.Rand())
		x.req, err = openaireq.ParseChat(body, e.Vocab())
	} else {
		x.id = fmt.Sprintf("cmpl-%016x", s.cfg.Rand())
		x.req, err = openaireq.ParseCompletion(body, e.Vocab())
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkModel(x.req.Model); err != nil {
		return nil, err
	}
	if x.req.Max == 0 && !x.req.Echo {
		return nil, sampling.NewParamError("max_tokens", "must be at least 1, got 0")
	}
	if x.prompts, err = e.PromptTokens(x.req); err != nil {
		return nil, err
	}
	for _, tokens := range x.prompts {
		g, err := s.generation(x.req, tokens)
		if err != nil {
			return nil, err
		}
		for k := range x.req.N { // each prompt starts from the request's seed; its answers have successive seeds
			g.Seed = x.req.Seed + uint64(k)
			if !x.req.HasSeed {
				g.Seed = s.cfg.Rand()
			}
			x.generations = append(x.generations, g)
		}
	}
	return x, nil
}

// generation returns the GenerationRequest for one prompt. Like vLLM, it refuses a
// max_tokens that does not fit into the context; clients may lower it and retry.
func (s *Server) generation(req openaireq.Request, tokens []int32) (tiny.GenerationRequest, error) {
	e := s.cfg.Engine
	limit := e.MaxTokens(req, tokens)
	if int64(len(tokens))+limit > int64(e.Context()) {
		return tiny.GenerationRequest{}, e.TooLong(int64(len(tokens)), limit)
	}
	req.Max = limit
	return e.NewGenerationRequest(req, tokens), nil
}

// generate generates choice i and records its metrics.
func (x *exchange) generate(ctx context.Context, i int, onDelta func(tiny.Delta)) (tiny.GenerationResult, error) {
	g := x.generations[i]
	g.OnDelta = onDelta
	out, err := x.cfg.Engine.Generate(ctx, g)
	x.metrics.record(out, err)
	return out, err
}

// respond answers with one JSON object.
func (x *exchange) respond(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outs := make([]tiny.GenerationResult, len(x.generations))
	var all sync.WaitGroup
	for i := range x.generations {
		all.Go(func() {
			var err error
			if outs[i], err = x.generate(ctx, i, nil); err != nil {
				cancel(err) // the first error is the answer; cancel the other choices
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		writeFault(w, err)
		return
	}
	out := x.appendHead(nil, false)
	out = append(out, `"choices":[`...)
	for i, o := range outs {
		out = x.appendChoice(comma(out, i), i, o)
	}
	out = append(out, `],"usage":`...)
	write(w, http.StatusOK, append(appendUsage(out, x.usage(outs)), '}'))
}

// usage returns the usage of all choices. Each prompt counts once, for any number of
// answers.
func (x *exchange) usage(outs []tiny.GenerationResult) engine.Usage {
	var u engine.Usage
	for _, p := range x.prompts {
		u.PromptTokens += int64(len(p))
	}
	for _, o := range outs {
		u.CompletionTokens += o.Usage.CompletionTokens
	}
	return u
}

// appendHead appends the start of a response object, up to the choices.
func (x *exchange) appendHead(out []byte, chunk bool) []byte {
	object := "text_completion"
	if x.chat {
		object = "chat.completion"
		if chunk {
			object += ".chunk"
		}
	}
	out = fmt.Appendf(out, `{"id":"%s","object":"%s","created":%d,"model":`, x.id, object, x.created)
	return append(quote(out, x.cfg.Engine.Name()), ',')
}

// appendChoice appends a complete choice.
func (x *exchange) appendChoice(out []byte, i int, o tiny.GenerationResult) []byte {
	out = fmt.Appendf(out, `{"index":%d,`, i)
	if x.chat {
		out = append(quote(append(out, `"message":{"role":"assistant","content":`...), o.Text), '}')
	} else {
		out = quote(append(out, `"text":`...), x.echo(i)+o.Text)
	}
	out = x.appendLogprobs(out, append(o.Prompt, o.Tokens...))
	return append(quote(append(out, `,"finish_reason":`...), o.Finish), `,"stop_reason":null}`...)
}

// echo returns the text that a choice begins with: its prompt if the request asks for
// an echo, otherwise "".
func (x *exchange) echo(i int) string {
	if !x.req.Echo {
		return ""
	}
	at := i / x.req.N
	if p := x.req.Prompts[at]; p.Tokens == nil {
		return p.Text
	}
	return x.text(x.prompts[at])
}

// text returns the text of tokens. Invalid UTF-8 becomes U+FFFD.
func (s *Server) text(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		b.Write(s.cfg.Engine.Piece(id))
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// appendLogprobs appends the member "logprobs" of a choice.
func (x *exchange) appendLogprobs(out []byte, tokens []openaireq.Token) []byte {
	out = append(out, `,"logprobs":`...)
	if x.req.Logprobs < 0 {
		return append(out, "null"...)
	}
	return openaireq.AppendLogprobs(out, x.chat, tokens)
}

func appendUsage(out []byte, u engine.Usage) []byte {
	return fmt.Appendf(out, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`,
		u.PromptTokens, u.PromptTokens+u.CompletionTokens, u.CompletionTokens)
}

// comma appends a comma, except before the first element.
func comma(out []byte, i int) []byte {
	if i == 0 {
		return out
	}
	return append(out, ',')
}
