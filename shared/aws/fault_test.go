package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"rollout/shared/fault"
)

// answered is the SDK's error about an answer with a status and, unless it is
// "", a code.
func answered(status int, code string) error {
	var err error = errors.New("no body")
	if code != "" {
		err = &smithy.GenericAPIError{Code: code, Message: "so it says"}
	}
	response := &smithyhttp.Response{Response: &http.Response{StatusCode: status}}
	return &smithy.OperationError{ServiceID: "S3", OperationName: "PutObject", Err: &smithyhttp.ResponseError{Response: response, Err: err}}
}

func TestErrorsHaveTheKindThatTheServiceMeans(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"S3: a condition that failed":               {answered(412, "PreconditionFailed"), fault.Conflict},
		"S3: another's request under way":           {answered(409, "ConditionalRequestConflict"), fault.Unavailable},
		"S3: no such key":                           {answered(404, "NoSuchKey"), fault.NotFound},
		"S3: a HEAD has a status alone":             {answered(404, ""), fault.NotFound},
		"S3: forbidden HEAD":                        {answered(403, ""), fault.Denied},
		"S3: slow down":                             {answered(503, "SlowDown"), fault.Throttled},
		"S3: an error within a 200":                 {answered(200, "InternalError"), fault.Unavailable},
		"S3: a range that is none":                  {answered(416, "InvalidRange"), fault.Invalid},
		"S3: too small a part":                      {answered(400, "EntityTooSmall"), fault.Invalid},
		"S3: a damaged part":                        {answered(400, "BadDigest"), fault.Corrupt},
		"S3: a bucket in another region":            {answered(301, "PermanentRedirect"), fault.Invalid},
		"S3: a key that is disabled":                {answered(400, "KMS.DisabledException"), fault.Denied},
		"SQS: a key that is disabled":               {answered(400, "KmsDisabled"), fault.Denied},
		"S3: a clock that is wrong":                 {answered(403, "RequestTimeTooSkewed"), fault.Denied},
		"DynamoDB: condition":                       {answered(400, "ConditionalCheckFailedException"), fault.Conflict},
		"DynamoDB: no table":                        {answered(400, "ResourceNotFoundException"), fault.NotFound},
		"DynamoDB: throughput":                      {answered(400, "ProvisionedThroughputExceededException"), fault.Throttled},
		"DynamoDB: nonsense":                        {answered(400, "ValidationException"), fault.Invalid},
		"DynamoDB: down":                            {answered(500, "InternalServerError"), fault.Unavailable},
		"SQS: no queue":                             {answered(400, "QueueDoesNotExist"), fault.NotFound},
		"SQS: no queue, in the older protocol":      {answered(400, "AWS.SimpleQueueService.NonExistentQueue"), fault.NotFound},
		"SQS: a receipt that does not hold":         {answered(400, "ReceiptHandleIsInvalid"), fault.Conflict},
		"SQS: too many in flight":                   {answered(403, "OverLimit"), fault.Throttled},
		"Secrets Manager: a key that is not for us": {answered(400, "DecryptionFailure"), fault.Denied},
		"any: expired credentials":                  {answered(403, "ExpiredToken"), fault.Denied},
		"any: throttled":                            {answered(400, "ThrottlingException"), fault.Throttled},
		"any: a code nobody knows, client's":        {answered(400, "Novel"), fault.Invalid},
		"any: a code nobody knows, server's":        {answered(502, "Novel"), fault.Unavailable},
		"any: too many requests":                    {answered(429, ""), fault.Throttled},
		"the way: refused":                          {&smithyhttp.RequestSendError{Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, fault.Unavailable},
		"the way: cut":                              {io.ErrUnexpectedEOF, fault.Unavailable},
		"the way: no name":                          {&net.DNSError{Err: "no such host"}, fault.Unavailable},
		"the way: an answer that is none":           {&smithy.DeserializationError{Err: errors.New("not XML")}, fault.Unavailable},
		"ours: canceled":                            {&smithy.CanceledError{Err: context.Canceled}, fault.Canceled},
		"ours: a kind of our own":                   {&smithy.OperationError{Err: fault.New(fault.Denied, "no credentials")}, fault.Denied},
		"nobody's":                                  {errors.New("what?"), fault.Internal},
	} {
		if got := fault.KindOf(translate(t.Context(), c.err, "try")); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if translate(t.Context(), nil, "try") != nil {
		t.Error("no error became one")
	}
}

func TestWhatFailsUnderAnEndedContextIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := translate(ctx, answered(500, "InternalError"), "try"); !fault.Is(err, fault.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for code := range remedies {
		if _, ok := kinds[code]; !ok {
			t.Errorf("%s has a remedy and no kind", code)
		}
		if err := translate(t.Context(), answered(400, code), "put object %s", "a"); !strings.Contains(err.Error(), remedies[code]) || !strings.Contains(err.Error(), "put object a") {
			t.Errorf("%v", err)
		}
	}
}

// asked is an error of a service that was asked for credentials.
func asked(service string, err error) error {
	return &smithy.OperationError{ServiceID: service, OperationName: "GetCredentials", Err: err}
}

// Who has no credentials is told how to sign in, wherever they were looked for
// last; whoever has some, and can't have them renewed now, that the way is cut.
func TestMissingCredentialsSayHowToSignIn(t *testing.T) {
	t.Parallel()
	_, missing := os.Stat(filepath.Join(t.TempDir(), "cache.json"))
	unplugged := &smithyhttp.RequestSendError{Err: &net.DNSError{Err: "no such host"}}
	slow := &smithyhttp.RequestSendError{Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}
	for name, c := range map[string]struct {
		had  bool
		err  error
		want fault.Kind
	}{
		"nowhere":            {false, errors.New("nothing found"), fault.Denied},
		"no instance to ask": {false, asked(metadataService, unplugged), fault.Denied},
		"no instance to ask, which took its time":  {false, asked(metadataService, slow), fault.Denied},
		"an instance without a role":               {false, asked(metadataService, answered(404, "")), fault.Denied},
		"an instance that is silent for a while":   {true, asked(metadataService, slow), fault.Unavailable},
		"a session that was never begun":           {false, fmt.Errorf("failed to read cached SSO token file, %w", missing), fault.Denied},
		"a session that is over":                   {true, errors.New("the SSO session has expired or is invalid"), fault.Denied},
		"a role that may not be taken on":          {false, asked("STS", answered(403, "AccessDenied")), fault.Denied},
		"a service of roles that is not reachable": {false, asked("STS", unplugged), fault.Unavailable},
		"a service of roles that is slow":          {false, asked("SSO", slow), fault.Unavailable},
		"a service of roles that is busy":          {false, asked("STS", answered(400, "Throttling")), fault.Throttled},
	} {
		provider := &credentials{CredentialsProvider: awssdk.CredentialsProviderFunc(none{c.err}.retrieve)}
		provider.had.Store(c.had)
		_, err := provider.Retrieve(t.Context())
		if fault.KindOf(err) != c.want || (c.want == fault.Denied) != strings.Contains(err.Error(), "sign in") {
			t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
		}
	}
}

func TestCredentialsThatWereThereAreKnownToBe(t *testing.T) {
	t.Parallel()
	provider := &credentials{CredentialsProvider: awssdk.CredentialsProviderFunc(none{}.anonymous)}
	if _, err := provider.Retrieve(t.Context()); err != nil || !provider.had.Load() {
		t.Errorf("%v", err)
	}
}

// none has no credentials, as the error says.
type none struct{ err error }

func (n none) retrieve(context.Context) (awssdk.Credentials, error) {
	return awssdk.Credentials{}, n.err
}

// anonymous has credentials of nobody.
func (none) anonymous(context.Context) (awssdk.Credentials, error) {
	return awssdk.Credentials{AccessKeyID: "nobody", SecretAccessKey: "none"}, nil
}
