package aws

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go/middleware"

	"rollout/shared/clock"
)

// datedClient responds with a Date header that is ahead of this machine's time.
type datedClient struct{ ahead time.Duration }

func (d datedClient) Do(*http.Request) (*http.Response, error) {
	date := time.Now().Add(d.ahead).UTC().Format(http.TimeFormat)
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}, "Date": {date}},
		Body:       io.NopCloser(strings.NewReader("{}")),
	}, nil
}

func TestClockFollowsServiceTimeBeyondMaxSkew(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, -2 * time.Minute, 0, time.Second, 2 * time.Minute} {
		c := NewClock(clock.System{})
		if off := time.Until(c.Now()); off.Abs() > time.Second {
			t.Errorf("before any response the clock is off by %v", off)
		}
		cfg := testConfig(datedClient{ahead})
		cfg.APIOptions = []func(*middleware.Stack) error{c.AddMiddleware}
		d := NewDocuments(cfg, "docs", DocumentOptions{})
		if err := d.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := ahead
		if ahead.Abs() <= maxSkew {
			want = 0
		}
		if off := time.Until(c.Now()) - want; off.Abs() > 2*time.Second {
			t.Errorf("services are %v ahead: the clock is off by %v", ahead, off)
		}
	}
}
