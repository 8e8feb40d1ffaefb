package aws

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/clock"
)

// dated answers with a date of its own.
type dated struct{ ahead time.Duration }

func (d dated) Do(*http.Request) (*http.Response, error) {
	date := time.Now().Add(d.ahead).UTC().Format(http.TimeFormat)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}, "Date": {date}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

func TestTheTimeIsTheServices(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, -2 * time.Minute, 0, time.Second, 2 * time.Minute} {
		c := NewClock(clock.System{})
		if off := time.Until(c.Now()); off.Abs() > time.Second {
			t.Errorf("before any answer it is off by %v", off)
		}
		d := NewDocuments(awssdk.Config{Region: "us-east-1", HTTPClient: dated{ahead}, Credentials: awssdk.CredentialsProviderFunc(none{}.anonymous),
			APIOptions: []func(*middleware.Stack) error{c.AddMiddleware}}, "docs", DocumentOptions{})
		if err := d.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := ahead
		if ahead.Abs() <= maxSkew {
			want = 0
		}
		if off := time.Until(c.Now()) - want; off.Abs() > 2*time.Second {
			t.Errorf("of services that are %v ahead it is off by %v", ahead, off)
		}
	}
}
