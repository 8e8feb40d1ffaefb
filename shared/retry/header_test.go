package retry_test

import (
	"net/http"
	"testing"
	"time"

	"rollout/shared/retry"
)

func TestAfterReadsSecondsAndDates(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"3": 3 * time.Second, " 0.5 ": 500 * time.Millisecond, "": 0, "-1": 0, "soon": 0, "NaN": 0, "1e300": 24 * time.Hour,
		"Fri, 01 Jan 2027 12:00:07 GMT": 7 * time.Second, "Fri, 01 Jan 2027 11:00:00 GMT": 0,
		"Fri, 01 Jan 2038 11:00:00 GMT": 24 * time.Hour,
	} {
		h := http.Header{"Retry-After": {value}, "Date": {"Fri, 01 Jan 2027 12:00:00 GMT"}}
		if got := retry.After(h); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
		if h.Del("Date"); value == "Fri, 01 Jan 2027 12:00:07 GMT" && retry.After(h) != 0 {
			t.Errorf("%q without a Date: %s, want 0", value, retry.After(h))
		}
	}
}

func TestAfterPrefersMilliseconds(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"19500": 19500 * time.Millisecond, "1e300": 24 * time.Hour, "0": 20 * time.Second, "-5": 20 * time.Second,
		"NaN": 20 * time.Second, "soon": 20 * time.Second,
	} {
		h := http.Header{"Retry-After": {"20"}, "Retry-After-Ms": {value}}
		if got := retry.After(h); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
