package ratelimit

// Amount counts requests and tokens. In a limit, 0 means that there is none.
type Amount struct {
	Requests int64 `json:"requests,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
}

// resources are the parts of an Amount, for rules that treat them alike.
const resources = 2

func (a Amount) vector() [resources]int64 { return [resources]int64{a.Requests, a.Tokens} }

func amount(v [resources]int64) Amount { return Amount{v[0], v[1]} }

// Plus returns the sum of both.
func (a Amount) Plus(b Amount) Amount { return Amount{a.Requests + b.Requests, a.Tokens + b.Tokens} }

// Minus returns a without b. A part of the result may be negative.
func (a Amount) Minus(b Amount) Amount { return Amount{a.Requests - b.Requests, a.Tokens - b.Tokens} }

// Min returns the lesser of each part.
func (a Amount) Min(b Amount) Amount {
	return Amount{min(a.Requests, b.Requests), min(a.Tokens, b.Tokens)}
}

// Max returns the greater of each part.
func (a Amount) Max(b Amount) Amount {
	return Amount{max(a.Requests, b.Requests), max(a.Tokens, b.Tokens)}
}

// Of returns the amount without the parts that the limit does not limit.
func (a Amount) Of(limit Amount) Amount {
	if limit.Requests == 0 {
		a.Requests = 0
	}
	if limit.Tokens == 0 {
		a.Tokens = 0
	}
	return a
}

// Within reports whether no part exceeds that of b.
func (a Amount) Within(b Amount) bool { return a.Requests <= b.Requests && a.Tokens <= b.Tokens }

// IsZero reports whether both parts are 0.
func (a Amount) IsZero() bool { return a == Amount{} }
