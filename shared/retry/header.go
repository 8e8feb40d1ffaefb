package retry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxHint bounds what After returns.
const maxHint = 24 * time.Hour

// After returns the wait that a response asks for: in Retry-After-Ms, which some hosted
// APIs send beside it and which is more exact, or in Retry-After, in seconds or as a date
// relative to the response's Date. It is 0 without a valid header, and a day at most.
func After(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, float64(maxHint.Milliseconds())) * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s > 0 && s <= maxHint.Seconds() {
			return time.Duration(s * float64(time.Second))
		}
		if s > 0 {
			return maxHint
		}
		return 0
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxHint)
}
