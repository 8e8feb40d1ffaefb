package gcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2/apierror"
	"google.golang.org/api/googleapi"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/shared/fault"
)

// httpError returns the SDK's error about an answer of Cloud Storage with a status
// and, unless it is "", a reason.
func httpError(code int, reason string) error {
	e := &googleapi.Error{Code: code, Message: "so it says"}
	if reason != "" {
		e.Errors = []googleapi.ErrorItem{{Reason: reason}}
	}
	return fmt.Errorf("storage: %w", e)
}

// grpcError returns the SDK's error about an answer with a code and, unless it is "",
// the reason of an ErrorInfo.
func grpcError(t *testing.T, code codes.Code, reason string) error {
	t.Helper()
	s := status.New(code, "so it says")
	if reason != "" {
		var err error
		if s, err = s.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "googleapis.com"}); err != nil {
			t.Fatal(err)
		}
	}
	e, ok := apierror.FromError(s.Err())
	if !ok {
		t.Fatal("no API error")
	}
	return e
}

func TestTranslateClassifiesErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"storage: failed condition":         {httpError(412, "conditionNotMet"), fault.Conflict},
		"storage: missing object":           {httpError(404, "notFound"), fault.NotFound},
		"storage: missing object, sentinel": {fmt.Errorf("get: %w", storage.ErrObjectNotExist), fault.NotFound},
		"storage: missing bucket, sentinel": {storage.ErrBucketNotExist, fault.NotFound},
		"storage: forbidden":                {httpError(403, "forbidden"), fault.Denied},
		"storage: rate limit as 403":        {httpError(403, "rateLimitExceeded"), fault.Throttled},
		"storage: object changes too often": {httpError(429, "rateLimitExceeded"), fault.Throttled},
		"storage: quota":                    {httpError(403, "quotaExceeded"), fault.Exhausted},
		"storage: API not enabled":          {httpError(403, "accessNotConfigured"), fault.Denied},
		"storage: server error":             {httpError(500, "backendError"), fault.Unavailable},
		"storage: overload":                 {httpError(503, ""), fault.Throttled},
		"storage: upload's session ended":   {httpError(410, ""), fault.Unavailable},
		"storage: range":                    {httpError(416, "requestedRangeNotSatisfiable"), fault.Invalid},
		"storage: too large":                {httpError(413, ""), fault.Exhausted},
		"storage: too many requests":        {httpError(429, ""), fault.Throttled},
		"storage: expired token":            {httpError(401, "authError"), fault.Denied},
		"any: conflict":                     {httpError(409, "conflict"), fault.Conflict},
		"any: unknown client error":         {httpError(400, "novel"), fault.Invalid},
		"any: unknown server error":         {httpError(502, "novel"), fault.Unavailable},
		"gRPC: stale update time":           {grpcError(t, codes.FailedPrecondition, ""), fault.Conflict},
		"gRPC: document exists":             {grpcError(t, codes.AlreadyExists, ""), fault.Conflict},
		"gRPC: missing document":            {grpcError(t, codes.NotFound, ""), fault.NotFound},
		"gRPC: contention":                  {grpcError(t, codes.Aborted, ""), fault.Unavailable},
		"gRPC: throttled":                   {grpcError(t, codes.ResourceExhausted, ""), fault.Throttled},
		"gRPC: used up": {
			grpcError(t, codes.ResourceExhausted, "RESOURCE_QUOTA_EXCEEDED"), fault.Exhausted,
		},
		"gRPC: denied":                     {grpcError(t, codes.PermissionDenied, "IAM_PERMISSION_DENIED"), fault.Denied},
		"gRPC: no credentials":             {grpcError(t, codes.Unauthenticated, ""), fault.Denied},
		"gRPC: not reachable":              {grpcError(t, codes.Unavailable, ""), fault.Unavailable},
		"gRPC: the service's own deadline": {grpcError(t, codes.DeadlineExceeded, ""), fault.Unavailable},
		"gRPC: a proxy's page":             {grpcError(t, codes.Unknown, ""), fault.Unavailable},
		"gRPC: invalid request":            {grpcError(t, codes.InvalidArgument, ""), fault.Invalid},
		"gRPC: without the SDK's wrapper":  {status.Error(codes.NotFound, "gone"), fault.NotFound},
		"gRPC: wrapped":                    {fmt.Errorf("pull: %w", status.Error(codes.Canceled, "gone")), fault.Canceled},
		"metadata: refused":                {&metadata.Error{Code: 403}, fault.Denied},
		"metadata: not defined":            {fmt.Errorf("get: %w", metadata.NotDefinedError("x")), fault.NotFound},
		"tokens: refused": {
			&auth.Error{Response: &http.Response{StatusCode: 400}}, fault.Invalid,
		},
		"tokens: service down": {
			&url.Error{Op: "Post", Err: &auth.Error{Response: &http.Response{StatusCode: 500}}}, fault.Unavailable,
		},
		"network: refused connection": {
			&url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, fault.Unavailable,
		},
		"network: broken connection": {io.ErrUnexpectedEOF, fault.Unavailable},
		"network: closed connection": {&url.Error{Op: "Get", Err: io.EOF}, fault.Unavailable},
		"network: unknown host":      {&net.DNSError{Err: "no such host"}, fault.Unavailable},
		"canceled request":           {context.Canceled, fault.Canceled},
		"fault.Error within":         {&url.Error{Op: "Get", Err: fault.New(fault.Denied, "no credentials")}, fault.Denied},
		"unknown error":              {errors.New("what?"), fault.Internal},
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
	if err := translate(ctx, httpError(500, "backendError"), "try"); !fault.Is(err, fault.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestTranslateAddsRemedyAndOperation(t *testing.T) {
	t.Parallel()
	for reason := range remedies {
		if _, ok := reasons[reason]; !ok {
			t.Errorf("the reason %s has a remedy but no kind", reason)
		}
		for _, cause := range []error{httpError(400, reason), grpcError(t, codes.Unknown, reason)} {
			err := translate(t.Context(), cause, "put object %s", "a")
			if !strings.Contains(err.Error(), remedies[reason]) || !strings.Contains(err.Error(), "put object a") {
				t.Errorf("%s: %v lacks the remedy or the operation", reason, err)
			}
		}
	}
}
