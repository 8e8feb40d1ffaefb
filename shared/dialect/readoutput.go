package dialect

import (
	"encoding/json"
	"time"

	"rollout/shared/fault"
)

// Output is what an output row says, for people and comparisons.
type Output struct {
	ID            string    // the item's own id, or its item id in hex
	Texts         []string  // of the answers: see ReadAnswers
	FinishReasons []string  // of the answers, in the words of the dialect; "" is none
	GeneratedAt   time.Time // zero in the bedrock dialect
	Usage         Usage
}

// ReadOutput reads an output row that AppendOutput wrote. A row that is not an output row
// is Corrupt.
func ReadOutput(d Name, row []byte) (o Output, err error) {
	if o.Texts, err = ReadAnswers(d, row); err != nil {
		return o, err
	}
	id, ok := ScanID(d, row)
	if !ok {
		return o, fault.New(fault.Corrupt, "an output row has no %s", idName(d))
	}
	o.ID, o.FinishReasons = string(id), finishReasons(d, row)
	switch d {
	case OpenAI:
		var r struct {
			Response struct {
				Body struct {
					Created json.RawMessage
					Usage   tokenCounts
				}
			}
		}
		if err = json.Unmarshal(row, &r); err == nil {
			o.Usage = r.Response.Body.Usage.usage()
			var at int64 // what other servers than ours sent may be a fraction
			if json.Unmarshal(r.Response.Body.Created, &at) == nil && at > 0 {
				o.GeneratedAt = time.Unix(at, 0).UTC()
			}
		}
	case Bedrock:
		type message struct {
			Usage struct {
				In  *int64 `json:"input_tokens"`
				Out *int64 `json:"output_tokens"`
			}
		}
		var r struct {
			ModelOutput  message
			ModelOutputs []message
		}
		if err = json.Unmarshal(row, &r); err == nil {
			all := r.ModelOutputs
			if len(all) == 0 {
				all = []message{r.ModelOutput}
			}
			c := tokenCounts{Prompt: all[0].Usage.In}
			total := int64(0)
			for _, m := range all {
				if c.Completion = m.Usage.Out; c.Completion == nil {
					break
				}
				total += *m.Usage.Out
				c.Completion = &total
			}
			o.Usage = c.usage()
		}
	case Vertex:
		var r struct {
			At       time.Time `json:"processed_time"`
			Response struct {
				Usage struct {
					Prompt     *int64 `json:"promptTokenCount"`
					Completion *int64 `json:"candidatesTokenCount"`
				} `json:"usageMetadata"`
			}
		}
		if err = json.Unmarshal(row, &r); err == nil {
			o.GeneratedAt = r.At
			o.Usage = tokenCounts{Prompt: r.Response.Usage.Prompt, Completion: r.Response.Usage.Completion}.usage()
		}
	default:
		var r struct {
			At    time.Time `json:"generated_at"`
			Usage tokenCounts
		}
		if err = json.Unmarshal(row, &r); err == nil {
			o.GeneratedAt, o.Usage = r.At, r.Usage.usage()
		}
	}
	return o, fault.WithKind(fault.Corrupt, err, "read an output row")
}

// tokenCounts are numbers of tokens, which are null where the server gave none.
type tokenCounts struct {
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
}

func (c tokenCounts) usage() (u Usage) {
	if c.Prompt == nil || c.Completion == nil {
		return Usage{Unknown: true}
	}
	return Usage{PromptTokens: *c.Prompt, CompletionTokens: *c.Completion}
}
