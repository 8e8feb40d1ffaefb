package gcp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2/apierror"
	"google.golang.org/api/googleapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/shared/fault"
)

// reasons maps the services' reasons to kinds: lower camel case in the older errors
// of Cloud Storage, capitals in the ErrorInfo of all services. An error without one
// of them is classified by its code or HTTP status.
var reasons = map[string]fault.Kind{
	// Any service.
	"ACCESS_TOKEN_EXPIRED":            fault.Denied,
	"ACCESS_TOKEN_SCOPE_INSUFFICIENT": fault.Denied,
	"ACCESS_TOKEN_TYPE_UNSUPPORTED":   fault.Denied,
	"ACCOUNT_STATE_INVALID":           fault.Denied,
	"BILLING_DISABLED":                fault.Denied,
	"CONSUMER_INVALID":                fault.Denied,
	"CREDENTIALS_MISSING":             fault.Denied,
	"IAM_PERMISSION_DENIED":           fault.Denied,
	"LOCATION_POLICY_VIOLATED":        fault.Denied,
	"ORG_RESTRICTION_VIOLATION":       fault.Denied,
	"RATE_LIMIT_EXCEEDED":             fault.Throttled,
	"RESOURCE_QUOTA_EXCEEDED":         fault.Exhausted,
	"SECURITY_POLICY_VIOLATED":        fault.Denied,
	"SERVICE_DISABLED":                fault.Denied,
	"USER_PROJECT_DENIED":             fault.Denied,

	// Cloud Storage.
	"accessNotConfigured":       fault.Denied,
	"accountDisabled":           fault.Denied,
	"authError":                 fault.Denied,
	"backendError":              fault.Unavailable,
	"conditionNotMet":           fault.Conflict,
	"dailyLimitExceeded":        fault.Exhausted,
	"forbidden":                 fault.Denied,
	"insufficientPermissions":   fault.Denied,
	"internalError":             fault.Unavailable,
	"objectUnderActiveHold":     fault.Denied,
	"quotaExceeded":             fault.Exhausted,
	"rateLimitExceeded":         fault.Throttled,
	"retentionPolicyNotMet":     fault.Denied,
	"uploadBrokenConnection":    fault.Unavailable,
	"userRateLimitExceeded":     fault.Throttled,
	"UserProjectAccessDenied":   fault.Denied,
	"UserProjectAccountProblem": fault.Denied,
}

// kinds maps the codes of gRPC to kinds. Unknown and Internal are failures of the
// service or of a proxy before it; the drivers' calls may all be repeated.
// FailedPrecondition is Firestore's answer to a stale update time.
var kinds = map[codes.Code]fault.Kind{
	codes.Aborted:            fault.Unavailable,
	codes.AlreadyExists:      fault.Conflict,
	codes.Canceled:           fault.Canceled,
	codes.DataLoss:           fault.Corrupt,
	codes.DeadlineExceeded:   fault.Unavailable,
	codes.FailedPrecondition: fault.Conflict,
	codes.Internal:           fault.Unavailable,
	codes.InvalidArgument:    fault.Invalid,
	codes.NotFound:           fault.NotFound,
	codes.OutOfRange:         fault.Invalid,
	codes.PermissionDenied:   fault.Denied,
	codes.ResourceExhausted:  fault.Throttled,
	codes.Unauthenticated:    fault.Denied,
	codes.Unavailable:        fault.Unavailable,
	codes.Unimplemented:      fault.Invalid,
	codes.Unknown:            fault.Unavailable,
}

// Remedies that several reasons share.
const (
	permissionRemedy = "grant this operation to the account that the process runs as"
	apiRemedy        = "enable the API in the project: gcloud services enable …, then wait some minutes"
	billingRemedy    = "link the project to an active billing account"
	projectRemedy    = "check cloud.project, and that the account may use the project"
)

// remedies say what to do, by the service's reason.
var remedies = map[string]string{
	"ACCESS_TOKEN_EXPIRED":            signIn,
	"ACCESS_TOKEN_SCOPE_INSUFFICIENT": "give the instance the scope cloud-platform",
	"ACCESS_TOKEN_TYPE_UNSUPPORTED":   signIn,
	"CREDENTIALS_MISSING":             signIn,
	"authError":                       signIn,
	"IAM_PERMISSION_DENIED":           permissionRemedy,
	"forbidden":                       permissionRemedy,
	"insufficientPermissions":         permissionRemedy,
	"SERVICE_DISABLED":                apiRemedy,
	"accessNotConfigured":             apiRemedy,
	"BILLING_DISABLED":                billingRemedy,
	"accountDisabled":                 billingRemedy,
	"UserProjectAccountProblem":       billingRemedy,
	"CONSUMER_INVALID":                projectRemedy,
	"USER_PROJECT_DENIED":             projectRemedy,
	"UserProjectAccessDenied":         projectRemedy,
	"objectUnderActiveHold":           "release the object's hold",
	"retentionPolicyNotMet":           "remove the bucket's retention policy: rollout deletes and replaces objects",
}

// serviceError is an error of a call of the SDK. Other errors of this package come from
// its own checks.
type serviceError struct{ error }

// Unwrap returns the SDK's error.
func (e *serviceError) Unwrap() error { return e.error }

// translate wraps err with its kind, the remedy for its reason and the operation
// that format describes. If ctx, the request's context, has ended, the kind is
// Canceled. A nil err stays nil.
func translate(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	kind := kindOf(err)
	if ctx.Err() != nil {
		kind = fault.Canceled
	}
	e := fault.WithKind(kind, &serviceError{err}, format, args...).(*fault.Error)
	e.Remedy = remedies[reasonOf(err)]
	return e
}

// kindOf classifies an error by the most specific evidence: a fault.Error within
// it, the service's reason, the code of gRPC, the HTTP status, and last the type of
// a network error.
func kindOf(err error) fault.Kind {
	var own *fault.Error
	if errors.As(err, &own) {
		return own.Kind
	}
	if kind, ok := reasons[reasonOf(err)]; ok {
		return kind
	}
	if kind, ok := kinds[codeOf(err)]; ok {
		return kind
	}
	if status := statusOf(err); status != 0 {
		return kindOfStatus(status)
	}
	var file *fs.PathError
	var network net.Error
	var undefined metadata.NotDefinedError
	switch {
	case errors.Is(err, storage.ErrObjectNotExist), errors.Is(err, storage.ErrBucketNotExist),
		errors.As(err, &undefined):
		return fault.NotFound
	case errors.Is(err, context.Canceled):
		return fault.Canceled
	case errors.As(err, &file): // for example a key's file; its errno would pass for a net.Error
		return fault.Internal
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF),
		errors.Is(err, net.ErrClosed):
		return fault.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Canceled
	}
	return fault.Internal
}

// reasonOf returns the service's reason for the error, or "". The reason of an
// ErrorInfo is the more precise one.
func reasonOf(err error) string {
	if detailed, ok := apierror.FromError(err); ok && detailed.Reason() != "" {
		return detailed.Reason()
	}
	var answer *googleapi.Error
	if errors.As(err, &answer) && len(answer.Errors) > 0 {
		return answer.Errors[0].Reason
	}
	return ""
}

// codeOf returns the gRPC code of the error, or OK if it has none.
func codeOf(err error) codes.Code {
	var coded interface{ GRPCStatus() *status.Status }
	if errors.As(err, &coded) {
		return coded.GRPCStatus().Code() // OK for a nil status
	}
	return codes.OK
}

// statusOf returns the HTTP status of the answer that err is about, or 0.
func statusOf(err error) int {
	var answer *googleapi.Error
	var fromMetadata *metadata.Error
	var fromTokens *auth.Error
	switch {
	case errors.As(err, &answer):
		return answer.Code
	case errors.As(err, &fromMetadata):
		return fromMetadata.Code
	case errors.As(err, &fromTokens) && fromTokens.Response != nil:
		return fromTokens.Response.StatusCode
	}
	return 0
}

func kindOfStatus(status int) fault.Kind {
	switch {
	case status == http.StatusNotFound:
		return fault.NotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fault.Denied
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return fault.Conflict
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return fault.Throttled
	case status == http.StatusRequestEntityTooLarge:
		return fault.Exhausted
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusGone, // an upload's session ended
		status < 300: // a success whose body is broken
		return fault.Unavailable
	case status >= 400:
		return fault.Invalid
	}
	return fault.Internal
}
