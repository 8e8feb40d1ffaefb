package progress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/figures"
)

// cutRows is where the cut answers among the first output rows ended.
type cutRows struct {
	rows      int
	byContext int   // with fewer tokens than max_tokens
	maxTokens int64 // of the rows, or 0 if they differ
	context   int64 // the tokens of prompt and answer of each of byContext, or 0 if they differ
}

// readCut looks at the first cut answers of an object of output rows in the plain dialect; those of others do not say
// what max_tokens was.
func readCut(ctx context.Context, bucket blob.Store, key string) (c cutRows, err error) {
	r, _, err := bucket.Get(ctx, key, blob.GetOptions{Length: headBytes})
	if fault.Is(err, fault.NotFound) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	defer r.Close() // opened for reading: closing loses nothing
	for lines := bufio.NewReader(r); ; {
		row, err := lines.ReadBytes('\n')
		if err == nil { // else it is cut itself
			c.add(bytes.TrimSpace(row))
		}
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return c, fault.Wrap(err, "read %s", key)
		}
	}
}

// add counts a row if it is that of one cut answer that says its limit and its tokens.
func (c *cutRows) add(row []byte) {
	var r struct {
		Completion   *string `json:"completion"`
		FinishReason string  `json:"finish_reason"`
		Params       struct {
			MaxTokens int64 `json:"max_tokens"`
		} `json:"sampling_params"`
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(row, &r) != nil || r.Completion == nil || r.Params.MaxTokens == 0 || r.Usage.Completion == 0 ||
		!slices.Contains(dialect.CutReasons(), r.FinishReason) {
		return
	}
	if c.rows++; c.rows == 1 {
		c.maxTokens = r.Params.MaxTokens
	} else if c.maxTokens != r.Params.MaxTokens {
		c.maxTokens = 0
	}
	if r.Usage.Completion >= r.Params.MaxTokens {
		return
	}
	all := r.Usage.Prompt + r.Usage.Completion
	if c.byContext++; c.byContext == 1 {
		c.context = all
	} else if c.context != all {
		c.context = 0
	}
}

// text says how many answers were cut, where, and what to do. Example: "289 of 500 answers were cut, the first ones at
// the model's context of 256 tokens (max_tokens 1,024 was not reached): take a model with a longer context".
func (c cutRows) text(s status.Status) string {
	text := fmt.Sprintf("%s of %s ", Count(uint64(s.CutAtLength())), figures.Of(s.Items.Done, "answer"))
	switch {
	case c.rows > 0 && c.byContext == c.rows:
		text += "were cut, the first ones at the model's context"
		if c.context > 0 && c.rows > 1 {
			text += " of " + figures.Of(c.context, "token")
		}
		text += " (max_tokens"
		if c.maxTokens > 0 {
			text += " " + figures.Count(c.maxTokens)
		}
		return text + " was not reached): take a model with a longer context, or shorten the prompts"
	case c.rows > 0 && c.byContext == 0 && c.maxTokens > 0:
		return text + fmt.Sprintf("were cut, the first ones at max_tokens %s: raise it", figures.Count(c.maxTokens))
	}
	return text + "reached the length limit: raise max_tokens, or the model's context"
}
