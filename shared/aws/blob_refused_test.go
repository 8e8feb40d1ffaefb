package aws

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// refusing answers every request as S3 does that refuses it: with words, but to
// a HEAD.
type refusing struct {
	status int
	code   string
}

func (s refusing) Do(r *http.Request) (*http.Response, error) {
	text := fmt.Sprintf("<Error><Code>%s</Code><Message>so it says</Message></Error>", s.code)
	if r.Method == http.MethodHead {
		text = ""
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{"Content-Type": {"application/xml"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// What is refused for another reason is not taken for an object, or a version,
// that is gone: that would end what waits for nothing but a fresh sign-in.
func TestARefusalIsNoAbsence(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct {
		status int
		want   fault.Kind
		says   string
	}{
		"ExpiredToken":                 {400, fault.Denied, "sign in again"},
		"InvalidAccessKeyId":           {403, fault.Denied, "knows no such credentials"},
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
		b := NewBucket(awssdk.Config{Region: "us-east-1", HTTPClient: refusing{c.status, code}, Retryer: func() awssdk.Retryer { return awssdk.NopRetryer{} },
			Credentials: awssdk.CredentialsProviderFunc(none{}.anonymous)}, "acme", BucketOptions{})
		if _, err := b.Stat(t.Context(), "a", "v"); fault.KindOf(err) != c.want || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: to stat: %v (%s)", code, err, fault.KindOf(err))
		}
		if _, _, err := b.Get(t.Context(), "a", blob.GetOptions{Version: "v"}); fault.KindOf(err) != c.want {
			t.Errorf("%s: to get: %v (%s)", code, err, fault.KindOf(err))
		}
	}
}
