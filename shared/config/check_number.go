package config

import (
	"fmt"
	"math"
)

// bound is one end of a range.
type bound struct {
	text string // for messages. Example: "at least 0"
	ok   func(float64) bool
}

func atLeast(v float64) bound {
	return bound{fmt.Sprintf("at least %v", v), func(x float64) bool { return x >= v }}
}

func above(v float64) bound {
	return bound{fmt.Sprintf("above %v", v), func(x float64) bool { return x > v }}
}

func below(v float64) bound {
	return bound{fmt.Sprintf("below %v", v), func(x float64) bool { return x < v }}
}

func atMost(v float64) bound {
	return bound{fmt.Sprintf("at most %v", v), func(x float64) bool { return x <= v }}
}

// float checks an optional number. It refuses NaN and infinities, because JSON
// cannot represent them.
func (c *checker) float(field string, x *float64, low, high bound) {
	if x == nil {
		return
	}
	if math.IsNaN(*x) || math.IsInf(*x, 0) || !low.ok(*x) || !high.ok(*x) {
		c.add(field, "must be %s and %s, is %v", low.text, high.text, *x)
	}
}

// integer checks an optional whole number. The message ends with hint.
func (c *checker) integer(field string, x *int, low, high int, hint string) {
	if x != nil && (*x < low || *x > high) {
		c.add(field, "must be between %d and %d, is %d%s", low, high, *x, hint)
	}
}

func (c *checker) price(field string, x float64, of string) {
	if !(x >= 0 && x <= maxPrice) {
		c.add(field, "must be between 0 and %d dollars for %s, is %g", maxPrice, of, x)
	}
}

// What prices are for, in messages.
const (
	aMillionTokens = "a million tokens"
	anHour         = "an hour of a machine"
)

func (c *checker) notNegative(field string, d Duration) {
	if d < 0 {
		c.add(field, "must not be negative, is %s", d.Std())
	}
}

func (c *checker) positive(field string, d Duration) {
	if d <= 0 {
		c.add(field, "must be longer than 0s, is %s", d.Std())
	}
}
