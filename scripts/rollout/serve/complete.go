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

// exchange is a request that is being answered.
type exchange struct {
	*Server
	chat      bool
	id        string // "cmpl-0123456789abcdef"
	created   int64
	req       openaireq.Request
	prompts   [][]int32
	questions []tiny.GenerationRequest // prompt by prompt, n each: the choices, by index
}

// complete answers a chat or a completion.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	x, err := s.exchange(r, chat)
	if err != nil {
		writeFault(w, err)
		return
	}
	if x.req.Stream {
		x.stream(r.Context(), w)
	} else {
		x.whole(r.Context(), w)
	}
}

// exchange reads and checks a request.
func (s *Server) exchange(r *http.Request, chat bool) (*exchange, error) {
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
	if err := s.served(x.req.Model); err != nil {
		return nil, err
	}
	if x.req.Max == 0 && !x.req.Echo {
		return nil, sampling.NewParamError("max_tokens", "must be at least 1, got 0")
	}
	if x.prompts, err = e.PromptTokens(x.req); err != nil {
		return nil, err
	}
	for _, tokens := range x.prompts {
		q, err := s.question(x.req, tokens)
		if err != nil {
			return nil, err
		}
		for k := range x.req.N { // the same seed for each prompt, another one for each of its answers
			q.Seed = x.req.Seed + uint64(k)
			if !x.req.HasSeed {
				q.Seed = s.cfg.Rand()
			}
			x.questions = append(x.questions, q)
		}
	}
	return x, nil
}

// question asks for an answer to one prompt. A max_tokens that does not fit is
// refused, as vLLM does: clients lower it, if they want to.
func (s *Server) question(req openaireq.Request, tokens []int32) (tiny.GenerationRequest, error) {
	e := s.cfg.Engine
	limit := e.MaxTokens(req, tokens)
	if int64(len(tokens))+limit > int64(e.Context()) {
		return tiny.GenerationRequest{}, e.TooLong(int64(len(tokens)), limit)
	}
	req.Max = limit
	return e.NewGenerationRequest(req, tokens), nil
}

// answer asks one of the questions, and counts what came of it.
func (x *exchange) answer(ctx context.Context, i int, emit func(tiny.Delta)) (tiny.GenerationResult, error) {
	q := x.questions[i]
	q.OnDelta = emit
	out, err := x.cfg.Engine.Generate(ctx, q)
	x.metrics.count(out, err)
	return out, err
}

// whole answers with one JSON object.
func (x *exchange) whole(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outs := make([]tiny.GenerationResult, len(x.questions))
	var all sync.WaitGroup
	for i := range x.questions {
		all.Go(func() {
			var err error
			if outs[i], err = x.answer(ctx, i, nil); err != nil {
				cancel(err) // the first one counts; the others need not go on
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		writeFault(w, err)
		return
	}
	out := x.head(nil, false)
	out = append(out, `"choices":[`...)
	for i, o := range outs {
		out = x.appendChoice(comma(out, i), i, o)
	}
	out = append(out, `],"usage":`...)
	write(w, http.StatusOK, append(appendUsage(out, x.usage(outs)), '}'))
}

// usage adds up what the answers took. A prompt counts once, however many
// answers it gets.
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

// head opens an object and writes what comes before the choices.
func (x *exchange) head(out []byte, chunk bool) []byte {
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

// appendChoice appends a whole answer.
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

// echo is the text that a choice begins with: its prompt, or nothing.
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

// text is what tokens spell.
func (s *Server) text(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		b.Write(s.cfg.Engine.Piece(id))
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func (x *exchange) appendLogprobs(out []byte, tokens []openaireq.Token) []byte {
	out = append(out, `,"logprobs":`...)
	if x.req.Logprobs < 0 {
		return append(out, "null"...)
	}
	return openaireq.AppendLogprobs(out, x.chat, tokens)
}

func appendUsage(out []byte, u engine.Usage) []byte {
	return fmt.Appendf(out, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, u.PromptTokens, u.PromptTokens+u.CompletionTokens, u.CompletionTokens)
}

func comma(out []byte, i int) []byte {
	if i == 0 {
		return out
	}
	return append(out, ',')
}
