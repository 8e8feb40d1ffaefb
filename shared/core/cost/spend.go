package cost

import "math"

// Spend is an amount of what the budgets of a run count. As a limit, a part that is 0 sets
// none.
type Spend struct {
	Tokens   int64 `json:"tokens,omitempty"`    // of prompts and answers
	MicroUSD int64 `json:"micro_usd,omitempty"` // millionths of a dollar
}

// Plus returns the sum of two amounts.
func (s Spend) Plus(o Spend) Spend { return Spend{s.Tokens + o.Tokens, s.MicroUSD + o.MicroUSD} }

// Minus returns the difference of two amounts.
func (s Spend) Minus(o Spend) Spend { return Spend{s.Tokens - o.Tokens, s.MicroUSD - o.MicroUSD} }

// Times returns n times the amount.
func (s Spend) Times(n int) Spend { return Spend{s.Tokens * int64(n), s.MicroUSD * int64(n)} }

// AtLeast returns the amount with each part as large as in either.
func (s Spend) AtLeast(o Spend) Spend {
	return Spend{max(s.Tokens, o.Tokens), max(s.MicroUSD, o.MicroUSD)}
}

// Reaches reports whether the amount is as much as a limit allows, or more.
func (s Spend) Reaches(limit Spend) bool {
	return limit.Tokens > 0 && s.Tokens >= limit.Tokens || limit.MicroUSD > 0 && s.MicroUSD >= limit.MicroUSD
}

// Holds reports whether a limit allows the amount.
func (s Spend) Holds(amount Spend) bool {
	return (s.Tokens <= 0 || amount.Tokens <= s.Tokens) && (s.MicroUSD <= 0 || amount.MicroUSD <= s.MicroUSD)
}

// IsZero reports whether the amount is nothing; as a limit, whether it sets none.
func (s Spend) IsZero() bool { return s == Spend{} }

// Micros returns billionths of a dollar as millionths, rounded up.
func Micros(nanoUSD int64) int64 { return nanoUSD/1000 + (nanoUSD%1000+999)/1000 }

// Sum returns the sum of two amounts, such as of billionths of a dollar, that are not negative:
// at most the largest integer.
func Sum(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// LimitOf returns the budgets of so many tokens and dollars as a limit. Dollars are rounded
// to millionths, and up to the first one.
func LimitOf(tokens int64, dollars float64) Spend {
	s := Spend{Tokens: tokens}
	if dollars > 0 {
		s.MicroUSD = max(1, int64(math.Round(dollars*1e6)))
	}
	return s
}

// USD returns the money of the amount in dollars.
func (s Spend) USD() float64 { return float64(s.MicroUSD) / 1e6 }

// TokenPrices are what a million tokens of a hosted model cost, in dollars.
type TokenPrices struct{ Prompt, Completion float64 }

// Known reports whether tokens have a price.
func (p TokenPrices) Known() bool { return p.Prompt > 0 || p.Completion > 0 }

// maxNanoUSD bounds what a request is believed to cost: $1,000. A server that counts too many
// tokens must not make a sum over shards leave its range.
const maxNanoUSD = 1e12

// NanoUSD returns what the tokens of a request cost, in billionths of a dollar: at most
// maxNanoUSD.
func (p TokenPrices) NanoUSD(prompt, completion int64) int64 {
	nano := math.Round(1000 * (float64(prompt)*p.Prompt + float64(completion)*p.Completion))
	return int64(min(nano, maxNanoUSD))
}
