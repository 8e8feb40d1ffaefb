package shard

import "rollout/shared/core/cost"

// The finish reasons that have a meaning here. All others are the server's own.
const (
	FinishStop  = "stop"  // the model ended its answer
	FinishNone  = "none"  // the server gave no reason
	finishOther = "other" // further reasons, beyond maxFinish
)

// maxFinish bounds the reasons that Counts tell apart, so that documents stay small
// whatever servers send; maxReason bounds one of them in bytes.
const (
	maxFinish = 16
	maxReason = 32
)

// Add adds the counts of another shard.
func (c *Counts) Add(o Counts) {
	c.OK += o.OK
	c.Failed += o.Failed
	c.PromptTokens += o.PromptTokens
	c.CompletionTokens += o.CompletionTokens
	c.WastedTokens += o.WastedTokens
	c.CachedTokens += o.CachedTokens
	c.ReasoningTokens += o.ReasoningTokens
	c.WastedEstimated += o.WastedEstimated
	c.UsageUnknown += o.UsageUnknown
	c.Kept += o.Kept
	c.KeptFailed += o.KeptFailed
	c.Machines.Add(o.Machines)
	c.TokenNanoUSD = cost.Sum(c.TokenNanoUSD, o.TokenNanoUSD)
	for k, n := range o.ByClass {
		if c.ByClass == nil {
			c.ByClass = map[string]int{}
		}
		c.ByClass[k] += n
	}
	for k, n := range o.Finish {
		c.addFinish(k, n)
	}
}

// Tokens returns all tokens that the items took, in all attempts of the shard.
func (c Counts) Tokens() int64 { return c.PromptTokens + c.CompletionTokens + c.WastedTokens }

// Spend returns what all attempts of the shard have spent, as budgets count it.
func (c Counts) Spend() cost.Spend {
	return cost.Spend{Tokens: c.Tokens(), MicroUSD: cost.Micros(cost.Sum(c.TokenNanoUSD, c.Machines.Sum().NanoUSD))}
}

// HasAnswers reports whether a request for one of the items was answered. Items that a
// child run keeps do not count, and neither do copies of other items, which have no
// tokens.
func (c Counts) HasAnswers() bool {
	return c.OK > c.Kept && (c.PromptTokens > 0 || c.CompletionTokens > 0 || c.UsageUnknown > 0)
}

// TokensOnly returns the tokens, what they cost and the machines' time of the counts, and no
// items.
func (c Counts) TokensOnly() Counts {
	return Counts{PromptTokens: c.PromptTokens, CompletionTokens: c.CompletionTokens, WastedTokens: c.WastedTokens,
		CachedTokens: c.CachedTokens, ReasoningTokens: c.ReasoningTokens, WastedEstimated: c.WastedEstimated,
		Machines: c.Machines, TokenNanoUSD: c.TokenNanoUSD}
}

// AddFinish counts an answered item by its finish reason, as the server wrote it.
func (c *Counts) AddFinish(reason string) {
	if reason != FinishStop {
		c.addFinish(cleanReason(reason), 1)
	}
}

func (c *Counts) addFinish(reason string, n int) {
	if c.Finish == nil {
		c.Finish = map[string]int{}
	}
	if _, known := c.Finish[reason]; !known && len(c.Finish) >= maxFinish {
		reason = finishOther
	}
	c.Finish[reason] += n
}

// cleanReason returns the reason as a short name of letters, digits and underscores.
func cleanReason(reason string) string {
	if reason == "" {
		return FinishNone
	}
	out := []byte(reason[:min(len(reason), maxReason)])
	for i, b := range out {
		if b|0x20 < 'a' || b|0x20 > 'z' {
			if b < '0' || b > '9' {
				out[i] = '_'
			}
		}
	}
	return string(out)
}

// HasOtherFinish reports whether Finish counts reasons without their names, because they
// were too many.
func (c Counts) HasOtherFinish() bool { return c.Finish[finishOther] > 0 }

// FinishReasons counts the answers by their finish reason, FinishStop included. It
// leaves out the items of OK that are Kept, and as many as are copies of other answers.
// It is nil without an answer.
func (c Counts) FinishReasons(copies int) map[string]int {
	stopped := c.OK - copies - c.Kept
	out := map[string]int{}
	for k, n := range c.Finish {
		out[k] = n
		stopped -= n
	}
	if stopped > 0 {
		out[FinishStop] = stopped
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
