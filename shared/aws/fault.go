package aws

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"rollout/shared/fault"
)

// kinds maps the services' error codes to kinds. A code that it lacks is
// classified by the HTTP status.
var kinds = map[string]fault.Kind{
	// Any service.
	"AccessDenied":                  fault.Denied,
	"AccessDeniedException":         fault.Denied,
	"AllAccessDisabled":             fault.Denied,
	"ExpiredToken":                  fault.Denied,
	"ExpiredTokenException":         fault.Denied,
	"IncompleteSignature":           fault.Denied,
	"InvalidAccessKeyId":            fault.Denied,
	"InvalidClientTokenId":          fault.Denied,
	"InvalidSignatureException":     fault.Denied,
	"InvalidToken":                  fault.Denied,
	"MissingAuthenticationToken":    fault.Denied,
	"NotAuthorized":                 fault.Denied,
	"OptInRequired":                 fault.Denied,
	"RequestExpired":                fault.Denied,
	"RequestTimeTooSkewed":          fault.Denied,
	"SignatureDoesNotMatch":         fault.Denied,
	"UnrecognizedClientException":   fault.Denied,
	"InternalError":                 fault.Unavailable,
	"InternalFailure":               fault.Unavailable,
	"InternalServerError":           fault.Unavailable,
	"InternalServiceError":          fault.Unavailable,
	"RequestTimeout":                fault.Unavailable,
	"RequestTimeoutException":       fault.Unavailable,
	"ServiceUnavailable":            fault.Unavailable,
	"ServiceUnavailableException":   fault.Unavailable,
	"BandwidthLimitExceeded":        fault.Throttled,
	"PriorRequestNotComplete":       fault.Throttled,
	"RequestLimitExceeded":          fault.Throttled,
	"RequestThrottled":              fault.Throttled,
	"RequestThrottledException":     fault.Throttled,
	"Throttling":                    fault.Throttled,
	"ThrottlingException":           fault.Throttled,
	"ThrottledException":            fault.Throttled,
	"TooManyRequestsException":      fault.Throttled,
	"LimitExceededException":        fault.Exhausted,
	"ServiceQuotaExceededException": fault.Exhausted,
	"ValidationError":               fault.Invalid,
	"ValidationException":           fault.Invalid,

	// EC2, Service Quotas and Systems Manager.
	"AuthFailure":             fault.Denied,
	"InvalidAMIID.Malformed":  fault.NotFound,
	"InvalidAMIID.NotFound":   fault.NotFound,
	"NoSuchResourceException": fault.NotFound,
	"ParameterNotFound":       fault.NotFound,
	"UnauthorizedOperation":   fault.Denied,

	// S3.
	"AuthorizationHeaderMalformed": fault.Invalid,     // usually: signed for another region
	"PermanentRedirect":            fault.Invalid,     // the bucket is in another region
	"TemporaryRedirect":            fault.Unavailable, // the DNS entry of a new bucket is not everywhere yet
	"ConditionalRequestConflict":   fault.Unavailable, // a concurrent request may still win or fail
	"EntityTooLarge":               fault.Exhausted,
	"EntityTooSmall":               fault.Invalid,
	"InvalidObjectState":           fault.Denied, // archived
	"InvalidPart":                  fault.Corrupt,
	"BadDigest":                    fault.Corrupt,
	"XAmzContentSHA256Mismatch":    fault.Corrupt,
	"NoSuchBucket":                 fault.NotFound,
	"NoSuchKey":                    fault.NotFound,
	"NoSuchUpload":                 fault.NotFound,
	"NoSuchVersion":                fault.NotFound,
	"NotFound":                     fault.NotFound,
	"OperationAborted":             fault.Unavailable,
	"PreconditionFailed":           fault.Conflict,
	"SlowDown":                     fault.Throttled,

	// DynamoDB.
	"ConditionalCheckFailedException":          fault.Conflict,
	"TransactionConflictException":             fault.Unavailable,
	"ItemCollectionSizeLimitExceededException": fault.Exhausted,
	"ProvisionedThroughputExceededException":   fault.Throttled,
	"ReplicatedWriteConflictException":         fault.Unavailable,
	"ResourceInUseException":                   fault.Unavailable,
	"ResourceNotFoundException":                fault.NotFound, // Secrets Manager's as well

	// SQS. The longer names are those of its older protocol.
	"AWS.SimpleQueueService.MessageNotInflight":   fault.Conflict,
	"AWS.SimpleQueueService.NonExistentQueue":     fault.NotFound,
	"AWS.SimpleQueueService.QueueDeletedRecently": fault.Unavailable,
	"InvalidMessageContents":                      fault.Invalid,
	"MessageNotInflight":                          fault.Conflict,
	"OverLimit":                                   fault.Throttled, // 120,000 messages in flight
	"QueueDeletedRecently":                        fault.Unavailable,
	"QueueDoesNotExist":                           fault.NotFound,
	"ReceiptHandleIsInvalid":                      fault.Conflict,
	"KmsAccessDenied":                             fault.Denied,
	"KmsDisabled":                                 fault.Denied,
	"KmsInvalidKeyUsage":                          fault.Denied,
	"KmsInvalidState":                             fault.Denied,
	"KmsNotFound":                                 fault.Denied,
	"KmsOptInRequired":                            fault.Denied,
	"KmsThrottled":                                fault.Throttled,

	// The Key Management Service, in S3's answers and in SQS's older protocol.
	"KMS.AccessDeniedException":    fault.Denied,
	"KMS.DisabledException":        fault.Denied,
	"KMS.InvalidKeyUsageException": fault.Denied,
	"KMS.InvalidStateException":    fault.Denied,
	"KMS.KMSInvalidStateException": fault.Denied,
	"KMS.NotFoundException":        fault.Denied,
	"KMS.OptInRequired":            fault.Denied,
	"KMS.ThrottlingException":      fault.Throttled,

	// Auto Scaling.
	"LimitExceeded":             fault.Exhausted,
	"ResourceContention":        fault.Throttled,
	"ResourceInUse":             fault.Unavailable,
	"ScalingActivityInProgress": fault.Unavailable,
	"ServiceLinkedRoleFailure":  fault.Denied,

	// Lambda.
	"KMSAccessDeniedException":     fault.Denied,
	"KMSDisabledException":         fault.Denied,
	"KMSInvalidStateException":     fault.Denied,
	"KMSNotFoundException":         fault.Denied,
	"RecursiveInvocationException": fault.Denied,      // functions invoke each other in a loop
	"ResourceConflictException":    fault.Unavailable, // the function is being updated

	// Secrets Manager.
	"DecryptionFailure":             fault.Denied,
	"InternalServiceErrorException": fault.Unavailable,
}

// unknownCredentialsRemedy is the remedy for credentials that AWS does not know.
const unknownCredentialsRemedy = "AWS does not recognize the credentials: sign in again, or check AWS_PROFILE, " +
	"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"

// wrongRegionRemedy is the remedy for a bucket that is in another region.
const wrongRegionRemedy = "the bucket is in another region than the config says: check cloud.s3.bucket and cloud.region"

// disabledKeyRemedy is the remedy for an encryption key that can't be used.
const disabledKeyRemedy = "the encryption key is disabled or deleted: check it in the Key Management Service"

// permissionRemedy is the remedy for an operation that a policy does not allow.
const permissionRemedy = "allow this operation to the role or user that the process runs as"

// remedies say what to do, by the service's error code.
var remedies = map[string]string{
	"AccessDenied":                            permissionRemedy,
	"AccessDeniedException":                   permissionRemedy,
	"ExpiredToken":                            "sign in again",
	"ExpiredTokenException":                   "sign in again",
	"IncompleteSignature":                     unknownCredentialsRemedy,
	"InvalidAccessKeyId":                      unknownCredentialsRemedy,
	"InvalidClientTokenId":                    unknownCredentialsRemedy,
	"InvalidSignatureException":               unknownCredentialsRemedy,
	"InvalidToken":                            unknownCredentialsRemedy,
	"MissingAuthenticationToken":              unknownCredentialsRemedy,
	"SignatureDoesNotMatch":                   unknownCredentialsRemedy,
	"UnrecognizedClientException":             unknownCredentialsRemedy,
	"AuthFailure":                             unknownCredentialsRemedy,
	"AuthorizationHeaderMalformed":            wrongRegionRemedy,
	"PermanentRedirect":                       wrongRegionRemedy,
	"InvalidObjectState":                      "the object is archived: restore it first",
	"KmsDisabled":                             disabledKeyRemedy,
	"KmsInvalidState":                         disabledKeyRemedy,
	"KMS.DisabledException":                   disabledKeyRemedy,
	"KMS.InvalidStateException":               disabledKeyRemedy,
	"KMS.KMSInvalidStateException":            disabledKeyRemedy,
	"NoSuchBucket":                            "deploy the stack, or check cloud.s3.bucket and cloud.region",
	"OverLimit":                               "too many messages are in flight: run fewer workers",
	"QueueDoesNotExist":                       "deploy the stack, or check cloud.sqs.prefix and cloud.region",
	"AWS.SimpleQueueService.NonExistentQueue": "deploy the stack, or check cloud.sqs.prefix and cloud.region",
	"RequestExpired":                          "correct this machine's clock",
	"RequestTimeTooSkewed":                    "correct this machine's clock",
}

// translate wraps err with its kind, the remedy for its code and the operation
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
	e := fault.WithKind(kind, err, format, args...).(*fault.Error)
	e.Remedy = remedies[codeOf(err)]
	return e
}

// kindOf classifies an error by the most specific evidence: a fault.Error within
// it, the service's code, the HTTP status, and last the type of a network error.
func kindOf(err error) fault.Kind {
	var own *fault.Error
	if errors.As(err, &own) {
		return own.Kind
	}
	if kind, ok := kinds[codeOf(err)]; ok {
		return kind
	}
	if status := statusOf(err); status != 0 {
		return kindOfStatus(status)
	}
	var canceled *smithy.CanceledError
	var file *fs.PathError
	var network net.Error
	var unsent *smithyhttp.RequestSendError
	var garbled *smithy.DeserializationError
	switch {
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return fault.Canceled
	case errors.As(err, &file): // for example an SSO session's; its errno would pass for a net.Error
		return fault.Internal
	case errors.As(err, &network), errors.As(err, &unsent), errors.As(err, &garbled), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Canceled
	}
	var invalid *smithy.InvalidParamsError
	if errors.As(err, &invalid) {
		return fault.Invalid
	}
	return fault.Internal
}

// codeOf returns the service's code for the error, or "".
func codeOf(err error) string {
	var coded smithy.APIError
	if errors.As(err, &coded) {
		return coded.ErrorCode()
	}
	return ""
}

// statusOf returns the HTTP status of the response that err is about, or 0.
func statusOf(err error) int {
	var answered *smithyhttp.ResponseError
	if errors.As(err, &answered) && answered.Response != nil && answered.Response.Response != nil {
		return answered.HTTPStatusCode()
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
	case status >= 500, status == http.StatusRequestTimeout, status < 300: // a success whose body is broken
		return fault.Unavailable
	case status >= 400:
		return fault.Invalid
	}
	return fault.Internal
}
