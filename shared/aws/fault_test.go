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

// httpError returns the SDK's error about a response with a status and, unless it is
// "", a code.
func httpError(status int, code string) error {
	var err error = errors.New("no body")
	if code != "" {
		err = &smithy.GenericAPIError{Code: code, Message: "so it says"}
	}
	response := &smithyhttp.Response{Response: &http.Response{StatusCode: status}}
	err = &smithyhttp.ResponseError{Response: response, Err: err}
	return &smithy.OperationError{ServiceID: "S3", OperationName: "PutObject", Err: err}
}

func TestTranslateClassifiesErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"S3: failed condition":                   {httpError(412, "PreconditionFailed"), fault.Conflict},
		"S3: concurrent request":                 {httpError(409, "ConditionalRequestConflict"), fault.Unavailable},
		"S3: missing key":                        {httpError(404, "NoSuchKey"), fault.NotFound},
		"S3: missing key of a HEAD":              {httpError(404, ""), fault.NotFound},
		"S3: forbidden HEAD":                     {httpError(403, ""), fault.Denied},
		"S3: slow down":                          {httpError(503, "SlowDown"), fault.Throttled},
		"S3: error within a 200":                 {httpError(200, "InternalError"), fault.Unavailable},
		"S3: invalid range":                      {httpError(416, "InvalidRange"), fault.Invalid},
		"S3: part that is too small":             {httpError(400, "EntityTooSmall"), fault.Invalid},
		"S3: damaged part":                       {httpError(400, "BadDigest"), fault.Corrupt},
		"S3: bucket in another region":           {httpError(301, "PermanentRedirect"), fault.Invalid},
		"S3: disabled encryption key":            {httpError(400, "KMS.DisabledException"), fault.Denied},
		"SQS: disabled encryption key":           {httpError(400, "KmsDisabled"), fault.Denied},
		"S3: wrong clock":                        {httpError(403, "RequestTimeTooSkewed"), fault.Denied},
		"DynamoDB: failed condition":             {httpError(400, "ConditionalCheckFailedException"), fault.Conflict},
		"DynamoDB: missing table":                {httpError(400, "ResourceNotFoundException"), fault.NotFound},
		"DynamoDB: exceeded throughput":          {httpError(400, "ProvisionedThroughputExceededException"), fault.Throttled},
		"DynamoDB: invalid request":              {httpError(400, "ValidationException"), fault.Invalid},
		"DynamoDB: server error":                 {httpError(500, "InternalServerError"), fault.Unavailable},
		"SQS: missing queue":                     {httpError(400, "QueueDoesNotExist"), fault.NotFound},
		"SQS: missing queue, older protocol":     {httpError(400, "AWS.SimpleQueueService.NonExistentQueue"), fault.NotFound},
		"SQS: stale receipt":                     {httpError(400, "ReceiptHandleIsInvalid"), fault.Conflict},
		"SQS: too many messages in flight":       {httpError(403, "OverLimit"), fault.Throttled},
		"Secrets Manager: denied encryption key": {httpError(400, "DecryptionFailure"), fault.Denied},
		"any: expired credentials":               {httpError(403, "ExpiredToken"), fault.Denied},
		"any: throttled":                         {httpError(400, "ThrottlingException"), fault.Throttled},
		"any: unknown code, client error":        {httpError(400, "Novel"), fault.Invalid},
		"any: unknown code, server error":        {httpError(502, "Novel"), fault.Unavailable},
		"any: too many requests":                 {httpError(429, ""), fault.Throttled},
		"network: refused connection": {
			&smithyhttp.RequestSendError{Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, fault.Unavailable,
		},
		"network: broken connection": {io.ErrUnexpectedEOF, fault.Unavailable},
		"network: unknown host":      {&net.DNSError{Err: "no such host"}, fault.Unavailable},
		"network: unreadable response": {
			&smithy.DeserializationError{Err: errors.New("not XML")}, fault.Unavailable,
		},
		"canceled request": {&smithy.CanceledError{Err: context.Canceled}, fault.Canceled},
		"fault.Error within": {
			&smithy.OperationError{Err: fault.New(fault.Denied, "no credentials")}, fault.Denied,
		},
		"unknown error": {errors.New("what?"), fault.Internal},
	} {
		if got := fault.KindOf(translate(t.Context(), c.err, "try")); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if translate(t.Context(), nil, "try") != nil {
		t.Error("translate(nil) is not nil")
	}
}

func TestTranslateReportsCanceledAfterContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := translate(ctx, httpError(500, "InternalError"), "try"); !fault.Is(err, fault.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestTranslateAddsRemedyAndOperation(t *testing.T) {
	t.Parallel()
	for code := range remedies {
		if _, ok := kinds[code]; !ok {
			t.Errorf("the code %s has a remedy but no kind", code)
		}
		err := translate(t.Context(), httpError(400, code), "put object %s", "a")
		if !strings.Contains(err.Error(), remedies[code]) || !strings.Contains(err.Error(), "put object a") {
			t.Errorf("%s: %v lacks the remedy or the operation", code, err)
		}
	}
}

// credentialsError returns the error of a service that was asked for credentials.
func credentialsError(service string, err error) error {
	return &smithy.OperationError{ServiceID: service, OperationName: "GetCredentials", Err: err}
}

// Missing credentials have a remedy, whichever source was tried last. Credentials that
// cannot be renewed at the moment are a failure of the network.
func TestMissingCredentialsHaveSignInRemedy(t *testing.T) {
	t.Parallel()
	_, missing := os.Stat(filepath.Join(t.TempDir(), "cache.json"))
	unreachable := &smithyhttp.RequestSendError{Err: &net.DNSError{Err: "no such host"}}
	slow := &smithyhttp.RequestSendError{Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}
	for name, c := range map[string]struct {
		had  bool // credentials were found before
		err  error
		want fault.Kind
	}{
		"no source":                {false, errors.New("nothing found"), fault.Denied},
		"no instance":              {false, credentialsError(metadataService, unreachable), fault.Denied},
		"no instance, timeout":     {false, credentialsError(metadataService, slow), fault.Denied},
		"instance without a role":  {false, credentialsError(metadataService, httpError(404, "")), fault.Denied},
		"silent instance metadata": {true, credentialsError(metadataService, slow), fault.Unavailable},
		"missing SSO session":      {false, fmt.Errorf("failed to read cached SSO token file, %w", missing), fault.Denied},
		"expired SSO session":      {true, errors.New("the SSO session has expired or is invalid"), fault.Denied},
		"forbidden role":           {false, credentialsError("STS", httpError(403, "AccessDenied")), fault.Denied},
		"unreachable STS":          {false, credentialsError("STS", unreachable), fault.Unavailable},
		"slow SSO":                 {false, credentialsError("SSO", slow), fault.Unavailable},
		"throttled STS":            {false, credentialsError("STS", httpError(400, "Throttling")), fault.Throttled},
	} {
		provider := &credentials{CredentialsProvider: awssdk.CredentialsProviderFunc(fakeCredentials{c.err}.retrieve)}
		provider.succeeded.Store(c.had)
		_, err := provider.Retrieve(t.Context())
		if fault.KindOf(err) != c.want || (c.want == fault.Denied) != strings.Contains(err.Error(), "sign in") {
			t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
		}
	}
}

func TestRetrieveRemembersSuccess(t *testing.T) {
	t.Parallel()
	provider := &credentials{CredentialsProvider: awssdk.CredentialsProviderFunc(fakeCredentials{}.anonymous)}
	if _, err := provider.Retrieve(t.Context()); err != nil || !provider.succeeded.Load() {
		t.Errorf("%v", err)
	}
}

// fakeCredentials is a provider that fails with err, or has made-up credentials.
type fakeCredentials struct{ err error }

func (f fakeCredentials) retrieve(context.Context) (awssdk.Credentials, error) {
	return awssdk.Credentials{}, f.err
}

// anonymous returns made-up credentials.
func (fakeCredentials) anonymous(context.Context) (awssdk.Credentials, error) {
	return awssdk.Credentials{AccessKeyID: "fake", SecretAccessKey: "fake"}, nil
}
