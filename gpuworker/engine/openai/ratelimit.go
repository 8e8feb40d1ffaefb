package openai

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rollout/shared/core/ratelimit"
	"rollout/shared/retry"
)

// stated names the headers with one limit: how much a window has, what is left of it,
// and until when. reset is the time until the limit is whole again, or that time itself.
type stated struct {
	limit, remaining, reset string
	tokens                  bool
	per                     time.Duration // the window; 0 if only reset shows whether it is a minute
}

// statedLimits are the headers of hosted APIs, as http.Header spells them. Limits of a day
// or a month are left out: those who reach them are refused until then.
var statedLimits = []stated{
	// OpenAI, Azure, Fireworks, xAI; Groq, whose requests are those of a day.
	{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", false, 0},
	{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", true, 0},
	// Anthropic.
	{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining",
		"Anthropic-Ratelimit-Requests-Reset", false, time.Minute},
	{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining",
		"Anthropic-Ratelimit-Tokens-Reset", true, time.Minute},
	// Mistral, and what it sent before.
	{"X-Ratelimit-Limit-Req-Minute", "X-Ratelimit-Remaining-Req-Minute", "", false, time.Minute},
	{"Ratelimitbysize-Limit", "Ratelimitbysize-Remaining", "Ratelimitbysize-Reset", true, time.Minute},
	// Cerebras; Mistral's tokens.
	{"X-Ratelimit-Limit-Requests-Minute", "X-Ratelimit-Remaining-Requests-Minute",
		"X-Ratelimit-Reset-Requests-Minute", false, time.Minute},
	{"X-Ratelimit-Limit-Tokens-Minute", "X-Ratelimit-Remaining-Tokens-Minute",
		"X-Ratelimit-Reset-Tokens-Minute", true, time.Minute},
}

const (
	// longestMinute is until when a limit of a minute is whole again at the latest, with
	// a margin. A later reset belongs to a longer window.
	longestMinute = 90 * time.Second
	// refills is the least part of a minute after which an empty limit that is refilled
	// all the time is whole again. One that is whole earlier belongs to a minute of the
	// server's clock, at whose end all of it is there.
	refills = 0.8
)

// rateLimitOf returns what the header of an answer says about the server's limits.
func rateLimitOf(h http.Header) (r ratelimit.Report) {
	if !saysLimits(h) {
		return r
	}
	limit := [2]int64{} // of requests and of tokens
	for _, s := range statedLimits {
		n, wait := s.read(h)
		k := 0
		if s.tokens {
			k = 1
		}
		if n > 0 && (limit[k] == 0 || n < limit[k]) {
			limit[k] = n
		}
		r.Wait = max(r.Wait, wait)
	}
	if n := policyLimit(h); n > 0 && (limit[0] == 0 || n < limit[0]) {
		limit[0] = n
	}
	r.Limit = ratelimit.Amount{Requests: limit[0], Tokens: limit[1]}
	return r
}

// saysLimits reports whether the header has any of a limit. Most servers send none.
func saysLimits(h http.Header) bool {
	for name := range h {
		if strings.Contains(name, "atelimit") {
			return true
		}
	}
	return false
}

// read returns the limit of a minute that the headers state, 0 without one, and for how
// long nothing is left.
func (s stated) read(h http.Header) (limit int64, wait time.Duration) {
	limit = number(h.Get(s.limit))
	reset, known := time.Duration(0), false
	if v := h.Get(s.reset); s.reset != "" && v != "" {
		reset, known = untilReset(v, h)
	}
	if s.per == 0 && known && reset > longestMinute {
		limit = 0
	}
	left := h.Get(s.remaining)
	if left == "" || number(left) > 0 || !known {
		return limit, 0
	}
	if reset > longestMinute || float64(reset) < refills*float64(time.Minute) {
		return limit, reset
	}
	return limit, 0
}

// policyLimit returns the requests a minute of the header RateLimit-Policy of the
// Internet-Draft ietf-httpapi-ratelimit-headers; 0 without one. Its versions write a
// policy as 100;w=60 or as "name";q=100;w=60. Windows of more than a minute are left out.
func policyLimit(h http.Header) (limit int64) {
	for _, policy := range strings.Split(strings.Join(h["Ratelimit-Policy"], ","), ",") {
		first, rest, _ := strings.Cut(policy, ";")
		quota, window := number(first), int64(0)
		for _, p := range strings.Split(rest, ";") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(p), "="); name {
			case "q":
				quota = number(value)
			case "w":
				window = number(value)
			case "qu":
				if strings.Trim(value, `"`) != "requests" {
					quota = 0
				}
			}
		}
		if quota <= 0 || window <= 0 || window > 60 || quota > math.MaxInt64/60 {
			continue
		}
		if n := quota * 60 / window; limit == 0 || n < limit {
			limit = n
		}
	}
	return limit
}

// number returns a whole number that is not negative, or the whole part of one; 0 if v is
// none.
func number(v string) int64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	if err != nil || !(f >= 0 && f < 1<<62) {
		return 0
	}
	return int64(f)
}

// Numbers above these are seconds or milliseconds since 1970, not durations.
const (
	leastUnix      = 1e9
	leastUnixMilli = 1e12
)

// untilReset reads a time until a reset: a duration such as 6m0s or 20ms, seconds, seconds
// or milliseconds since 1970, or a time of RFC 3339 or of HTTP, by the header's Date. It is
// false for anything else.
func untilReset(v string, h http.Header) (time.Duration, bool) {
	v = strings.TrimSpace(v)
	if d, err := time.ParseDuration(v); err == nil {
		return max(d, 0), true
	}
	var at time.Time
	if f, err := strconv.ParseFloat(v, 64); err == nil {
		switch {
		case !(f >= 0 && f < 1e15):
			return 0, false
		case f < leastUnix:
			return time.Duration(f * float64(time.Second)), true
		case f < leastUnixMilli:
			at = time.Unix(int64(f), 0)
		default:
			at = time.UnixMilli(int64(f))
		}
	} else if at, err = time.Parse(time.RFC3339, v); err != nil {
		if at, err = http.ParseTime(v); err != nil {
			return 0, false
		}
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}

// What is said, in lower case, about a limit on requests at once.
var atOnceMessages = []string{
	"concurren",    // Anthropic, Mistral, gateways
	"parallel",     // LiteLLM
	"simultaneous", // hosted APIs
}

// refusalOf returns what a refusal (429) says about the server's limits.
func refusalOf(h http.Header, s serverError) ratelimit.Report {
	r := rateLimitOf(h)
	if wait := retry.After(h); wait > 0 {
		r.Wait = wait
	}
	about := strings.ToLower(s.message + " " + s.kind + " " + s.code)
	r.Refused = true
	r.AtOnce = containsAny(about, atOnceMessages)
	r.OfTokens = strings.Contains(about, "token") && !strings.Contains(about, "request")
	if strings.Contains(about, "tokens per") || strings.Contains(about, "token rate limit") {
		r.OfTokens = true // whatever else its message speaks of
	}
	return r
}
