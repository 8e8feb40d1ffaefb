package openai_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/core/ratelimit"
)

// Headers as the servers' manuals have them, and what of them counts: limits of a minute,
// and for how long nothing is left.
func TestAnswersSayWhatTheirHeadersSayOfLimits(t *testing.T) {
	t.Parallel()
	type report = ratelimit.Report
	requests := func(n int64) report { return report{Limit: ratelimit.Amount{Requests: n}} }
	both := func(n, tokens int64) report { return report{Limit: ratelimit.Amount{Requests: n, Tokens: tokens}} }
	wait := func(r report, d time.Duration) report { r.Wait = d; return r }
	const date = "Fri, 01 Jan 2027 12:00:00 GMT"
	for name, c := range map[string]struct {
		header map[string]string
		want   report
	}{
		"none": {nil, report{}},
		"OpenAI": {map[string]string{"x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "4999",
			"x-ratelimit-reset-requests": "12ms", "x-ratelimit-limit-tokens": "160000",
			"x-ratelimit-remaining-tokens": "159976", "x-ratelimit-reset-tokens": "9ms"}, both(5000, 160_000)},
		"OpenAI, of a day": {map[string]string{"x-ratelimit-limit-requests": "200", "x-ratelimit-remaining-requests": "199",
			"x-ratelimit-reset-requests": "7m12s"}, report{}},
		"OpenAI, empty": {map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
			"x-ratelimit-reset-requests": "1m0s"}, requests(60)}, // it refills one each second
		"Azure, at the end of its minute": {map[string]string{"x-ratelimit-limit-requests": "300",
			"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "10"}, wait(requests(300), 10*time.Second)},
		"Azure, what is left alone": {map[string]string{"x-ratelimit-remaining-requests": "50",
			"x-ratelimit-remaining-tokens": "49000"}, report{}},
		"Groq": {map[string]string{"x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14370",
			"x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-limit-tokens": "18000",
			"x-ratelimit-remaining-tokens": "17997", "x-ratelimit-reset-tokens": "7.66s"}, both(0, 18_000)},
		"Anthropic": {map[string]string{"anthropic-ratelimit-requests-limit": "50",
			"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2027-01-01T12:00:20Z",
			"anthropic-ratelimit-tokens-limit": "50000", "anthropic-ratelimit-tokens-remaining": "49000",
			"anthropic-ratelimit-tokens-reset": "2027-01-01T12:01:00Z"}, wait(both(50, 50_000), 20*time.Second)},
		"Mistral": {map[string]string{"x-ratelimit-limit-req-minute": "720", "x-ratelimit-remaining-req-minute": "717",
			"x-ratelimit-limit-tokens-minute": "5000000", "x-ratelimit-remaining-tokens-minute": "4999911",
			"x-ratelimit-tokens-query-cost": "52"}, both(720, 5_000_000)},
		"Mistral before": {map[string]string{"ratelimitbysize-limit": "500000", "ratelimitbysize-remaining": "499900",
			"ratelimitbysize-reset": "28"}, both(0, 500_000)},
		"Cerebras": {map[string]string{"x-ratelimit-limit-requests-day": "14400", "x-ratelimit-limit-tokens-minute": "60000",
			"x-ratelimit-remaining-tokens-minute": "59000", "x-ratelimit-reset-tokens-minute": "11.38"}, both(0, 60_000)},
		"Together and others, of an unknown window": {map[string]string{"x-ratelimit-limit": "10",
			"x-ratelimit-remaining": "9", "x-ratelimit-reset": "1"}, report{}},
		"the draft": {map[string]string{"ratelimit-policy": "100;w=60", "ratelimit-limit": "100",
			"ratelimit-remaining": "50", "ratelimit-reset": "5"}, requests(100)},
		"a later draft": {map[string]string{"ratelimit-policy": `"burst";q=10;w=1, "hour";q=1000;w=3600,"minute";q=240;w=60`,
			"ratelimit": `"minute";r=50;t=30`}, requests(240)},
		"a quota of bytes": {map[string]string{"ratelimit-policy": `"b";q=100;w=60;qu="content-bytes"`}, report{}},
		"nonsense": {map[string]string{"x-ratelimit-limit-requests": "many", "x-ratelimit-limit-tokens": "-1e300",
			"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon",
			"ratelimit-policy":                   ";;w=;q=,1e400;w=60",
			"anthropic-ratelimit-requests-limit": "NaN", "anthropic-ratelimit-tokens-limit": "Inf"}, report{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ask(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", date)
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				whole(`{"choices":[{"text":"a","finish_reason":"stop"}]}`)(w, r)
			}), hello)
			if err != nil || got.RateLimit != c.want {
				t.Errorf("%+v, %v, want %+v", got.RateLimit, err, c.want)
			}
		})
	}
}

func TestRefusalsSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	type report = ratelimit.Report
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   report
	}{
		"OpenAI, requests": {429, map[string]string{"retry-after": "20", "retry-after-ms": "19500"},
			`{"error":{"message":"Rate limit reached for m on requests per min (RPM): Limit 3, Used 3, Requested 1. Please ` +
				`try again in 20s.","type":"requests","code":"rate_limit_exceeded"}}`,
			report{Refused: true, Wait: 19500 * time.Millisecond}},
		"Groq, tokens": {429, map[string]string{"retry-after": "5.3", "x-ratelimit-limit-tokens": "15000"},
			`{"error":{"message":"Rate limit reached for model g on tokens per minute (TPM): Limit 15000, Used 11390, ` +
				`Requested 4351. Please try again in 2.961s.","type":"tokens","code":"rate_limit_exceeded"}}`,
			report{Refused: true, OfTokens: true, Wait: 5300 * time.Millisecond, Limit: ratelimit.Amount{Tokens: 15_000}}},
		"Azure, tokens": {429, map[string]string{"retry-after": "7"}, `{"error":{"code":"429","message":"Requests to the ` +
			`ChatCompletions_Create Operation have exceeded token rate limit of your current OpenAI S0 pricing tier."}}`,
			report{Refused: true, OfTokens: true, Wait: 7 * time.Second}},
		"LiteLLM, at once": {429, map[string]string{"retry-after": "60"},
			`{"error":{"message":"litellm.RateLimitError: Max parallel request limit reached","type":"throttling_error"}}`,
			report{Refused: true, AtOnce: true, Wait: time.Minute}},
		"without a wait, until what is left is whole again": {429, map[string]string{"x-ratelimit-remaining-requests": "0",
			"x-ratelimit-reset-requests": "4s"}, `slow down`, report{Refused: true, Wait: 4 * time.Second}},
		"nothing is said":   {429, nil, ``, report{Refused: true}},
		"a permanent quota": {429, nil, `{"error":{"message":"no money","code":"insufficient_quota"}}`, report{}},
		"an overload":       {503, map[string]string{"retry-after": "7"}, ``, report{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ask(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				sends(c.status, "application/json", c.body)(w, r)
			}), hello)
			if got := engine.RateLimitOf(err); got != c.want {
				t.Errorf("%+v, want %+v (%v)", got, c.want, err)
			}
		})
	}
}

// stating is a transport whose server answers with a header.
type stating http.Header

// RoundTrip implements http.RoundTripper.
func (s stating) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 429, Header: http.Header(s), Body: http.NoBody}, nil
}

// FuzzRateLimits feeds arbitrary values of headers to the client: what comes of them is
// never negative.
func FuzzRateLimits(f *testing.F) {
	f.Add("600", "0", "6m0s", "100;w=60", "1")
	f.Add("1e300", "-1", "2027-01-01T12:00:20Z", `"a";q=1;w=1,;;`, "Fri, 01 Jan 2027 12:00:00 GMT")
	f.Add("NaN", "Inf", "1798804800000", "1;w=0", "-9e99")
	f.Fuzz(func(t *testing.T, limit, remaining, reset, policy, retryAfter string) {
		h := http.Header{"Date": {"Fri, 01 Jan 2027 12:00:00 GMT"}, "Ratelimit-Policy": {policy},
			"Retry-After": {retryAfter}}
		for _, of := range []string{"X-Ratelimit-%s-Requests", "X-Ratelimit-%s-Tokens-Minute",
			"Anthropic-Ratelimit-Tokens-%s"} {
			h[fmt.Sprintf(of, "Limit")] = []string{limit}
			h[fmt.Sprintf(of, "Remaining")] = []string{remaining}
			h[fmt.Sprintf(of, "Reset")] = []string{reset}
		}
		c, err := openai.New(openai.Config{BaseURL: "http://h", HTTPClient: &http.Client{Transport: stating(h)}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Answer(t.Context(), hello, func() {})
		r := engine.RateLimitOf(err)
		if !r.Refused || r.Limit.Requests < 0 || r.Limit.Tokens < 0 || r.Wait < 0 {
			t.Errorf("%+v (%v)", r, err)
		}
	})
}
