package serve

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/sampling"
)

// tokenize answers with the tokens of a prompt or a chat, and their number, like vLLM.
// A prompt may be longer than the context.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := read(r)
	if err != nil {
		writeFault(w, err)
		return
	}
	e := s.cfg.Engine
	var asked struct {
		Model   string         `json:"model"`
		Prompt  *string        `json:"prompt"`
		Chat    jsontext.Value `json:"messages"`
		Strings bool           `json:"return_token_strs"`
	}
	err = json.Unmarshal(body, &asked, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err != nil {
		writeFault(w, sampling.NewParamError("prompt", "must be a string: %v", err))
		return
	}
	if err := s.checkModel(asked.Model); err != nil {
		writeFault(w, err)
		return
	}
	var tokens []int32
	switch {
	case asked.Prompt != nil:
		tokens = e.Tokens(*asked.Prompt)
	case len(asked.Chat) > 0:
		req, err := openaireq.ParseChat(body, e.Vocab())
		if err == nil {
			tokens, err = e.ChatTokens(req.Messages)
		}
		if err != nil {
			writeFault(w, err)
			return
		}
	default:
		writeFault(w, sampling.NewParamError("prompt", "is missing: send prompt or messages"))
		return
	}
	out := fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":[`, len(tokens), e.Context())
	for i, id := range tokens {
		out = strconv.AppendInt(comma(out, i), int64(id), 10)
	}
	out = append(out, `],"token_strs":`...)
	if !asked.Strings {
		write(w, http.StatusOK, append(out, "null}"...))
		return
	}
	out = append(out, '[')
	for i, id := range tokens {
		out = quote(comma(out, i), string(e.Piece(id)))
	}
	write(w, http.StatusOK, append(out, "]}"...))
}

// detokenize answers with the text of tokens.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, err := read(r)
	if err != nil {
		writeFault(w, err)
		return
	}
	var asked struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		writeFault(w, sampling.NewParamError("tokens", "must be a list of token ids: %v", err))
		return
	}
	err = s.checkModel(asked.Model)
	if err == nil {
		err = openaireq.CheckTokens("tokens", asked.Tokens, s.cfg.Engine.Vocab())
	}
	if err != nil {
		writeFault(w, err)
		return
	}
	write(w, http.StatusOK, append(quote([]byte(`{"prompt":`), s.text(asked.Tokens)), '}'))
}
