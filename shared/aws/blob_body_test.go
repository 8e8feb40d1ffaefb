package aws

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// cutting answers a GET with an object whose connection breaks.
type cutting struct{ err error }

func (c cutting) Do(r *http.Request) (*http.Response, error) {
	body := io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(c.err))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Amz-Version-Id": {"1"}}, ContentLength: 9, Body: io.NopCloser(body), Request: r}, nil
}

// An io.ErrUnexpectedEOF is what HTTP says of a body that is cut off, and what
// io.ReadFull says of an object that is shorter than was thought.
func TestABrokenConnectionIsNoEndOfAnObject(t *testing.T) {
	t.Parallel()
	b := NewBucket(awssdk.Config{Region: "us-east-1", HTTPClient: cutting{io.ErrUnexpectedEOF}, Retryer: func() awssdk.Retryer { return awssdk.NopRetryer{} },
		Credentials: awssdk.CredentialsProviderFunc(none{}.anonymous)}, "acme", BucketOptions{})
	r, _, err := b.Get(t.Context(), "a", blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if string(got) != "abc" || !fault.Is(err, fault.Unavailable) || errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("%q, %v (%s)", got, err, fault.KindOf(err))
	}
}
