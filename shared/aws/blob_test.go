package aws

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// refusingS3 refuses every request with an XML error; the response to a HEAD has no
// body.
type refusingS3 struct {
	status int
	code   string
}

func (s refusingS3) Do(r *http.Request) (*http.Response, error) {
	text := fmt.Sprintf("<Error><Code>%s</Code><Message>so it says</Message></Error>", s.code)
	if r.Method == http.MethodHead {
		text = ""
	}
	return &http.Response{
		StatusCode: s.status,
		Header:     http.Header{"Content-Type": {"application/xml"}},
		Body:       io.NopCloser(strings.NewReader(text)),
		Request:    r,
	}, nil
}

// A request that is refused for another reason must not look like a missing object
// or version: callers would give up where a new sign-in suffices.
func TestStatAndGetReportRefusalByItsReason(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct {
		status int
		want   fault.Kind
		says   string
	}{
		"ExpiredToken":                 {400, fault.Denied, "sign in again"},
		"InvalidAccessKeyId":           {403, fault.Denied, "does not recognize the credentials"},
		"RequestTimeTooSkewed":         {403, fault.Denied, "clock"},
		"AccessDenied":                 {403, fault.Denied, "so it says"},
		"PermanentRedirect":            {301, fault.Invalid, "cloud.region"},
		"AuthorizationHeaderMalformed": {400, fault.Invalid, "cloud.region"},
		"KMS.DisabledException":        {400, fault.Denied, "key"},
		"NoSuchBucket":                 {404, fault.NotFound, "stat object a"},
		"NoSuchVersion":                {404, fault.NotFound, "stat object a"},
		"InvalidArgument":              {400, fault.NotFound, "version"},
		"MethodNotAllowed":             {405, fault.NotFound, "version"},
	} {
		b := NewBucket(testConfig(refusingS3{c.status, code}), "acme", BucketOptions{})
		_, err := b.Stat(t.Context(), "a", "v")
		if fault.KindOf(err) != c.want || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Stat = %v (%s), want %s with %q", code, err, fault.KindOf(err), c.want, c.says)
		}
		if _, _, err := b.Get(t.Context(), "a", blob.GetOptions{Version: "v"}); fault.KindOf(err) != c.want {
			t.Errorf("%s: Get = %v (%s), want %s", code, err, fault.KindOf(err), c.want)
		}
	}
}

// brokenConnection answers a GET with an object whose connection breaks after three
// bytes.
type brokenConnection struct{ err error }

func (c brokenConnection) Do(r *http.Request) (*http.Response, error) {
	body := io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(c.err))
	return &http.Response{
		StatusCode:    http.StatusOK,
		Header:        http.Header{"X-Amz-Version-Id": {"1"}},
		ContentLength: 9,
		Body:          io.NopCloser(body),
		Request:       r,
	}, nil
}

// net/http returns io.ErrUnexpectedEOF for a truncated body. io.ReadFull returns the
// same error for an object that is shorter than expected.
func TestGetReportsBrokenConnectionAsUnavailable(t *testing.T) {
	t.Parallel()
	b := NewBucket(testConfig(brokenConnection{io.ErrUnexpectedEOF}), "acme", BucketOptions{})
	r, _, err := b.Get(t.Context(), "a", blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if string(got) != "abc" || !fault.Is(err, fault.Unavailable) || errors.Is(err, io.ErrUnexpectedEOF) ||
		!strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("read %q, %v (%s), want abc and Unavailable without a wrapped EOF", got, err, fault.KindOf(err))
	}
}
