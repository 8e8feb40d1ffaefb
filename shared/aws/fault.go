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

// kinds is the one table from the services' codes to kinds. What is not in it
// is judged by its HTTP status.
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

	// S3.
	"AuthorizationHeaderMalformed": fault.Invalid,     // mostly: signed for another region
	"PermanentRedirect":            fault.Invalid,     // it is in another region
	"TemporaryRedirect":            fault.Unavailable, // a new bucket is not known everywhere
	"ConditionalRequestConflict":   fault.Unavailable, // another's request is under way: which of them wins is open
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
	"OverLimit":                                   fault.Throttled, // 120,000 messages are in flight
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
	"RecursiveInvocationException": fault.Denied,      // functions feed each other
	"ResourceConflictException":    fault.Unavailable, // it is being updated

	// Secrets Manager.
	"DecryptionFailure":             fault.Denied,
	"InternalServiceErrorException": fault.Unavailable,
}

// unknownCredentialsRemedy is the remedy for credentials that AWS does not know.
const unknownCredentialsRemedy = "sign in again, or look at AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN: AWS knows no such credentials"

// wrongRegionRemedy is the remedy for a bucket that is in another region.
const wrongRegionRemedy = "the bucket is in another region than the config says: look at cloud.s3.bucket and cloud.region"

// disabledKeyRemedy is the remedy for a key that can't be used.
const disabledKeyRemedy = "the key that it is encrypted with is disabled or gone: look at it in the Key Management Service"

// remedies say what to do about some codes.
var remedies = map[string]string{
	"AccessDenied":                            "let the role that this runs under do it",
	"AccessDeniedException":                   "let the role that this runs under do it",
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
	"AuthorizationHeaderMalformed":            wrongRegionRemedy,
	"PermanentRedirect":                       wrongRegionRemedy,
	"InvalidObjectState":                      "it is archived: restore it first",
	"KmsDisabled":                             disabledKeyRemedy,
	"KmsInvalidState":                         disabledKeyRemedy,
	"KMS.DisabledException":                   disabledKeyRemedy,
	"KMS.InvalidStateException":               disabledKeyRemedy,
	"KMS.KMSInvalidStateException":            disabledKeyRemedy,
	"NoSuchBucket":                            "deploy the stack, or look at cloud.s3.bucket and cloud.region",
	"OverLimit":                               "too many messages are being worked on: lower the number of workers",
	"QueueDoesNotExist":                       "deploy the stack, or look at cloud.sqs.prefix and cloud.region",
	"AWS.SimpleQueueService.NonExistentQueue": "deploy the stack, or look at cloud.sqs.prefix and cloud.region",
	"RequestExpired":                          "set this machine's clock",
	"RequestTimeTooSkewed":                    "set this machine's clock",
}

// translate gives err, of a request made under ctx, its kind and says what was
// being done; nil stays nil.
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

// kindOf judges by what is known best: our own kind, the service's code, the
// HTTP status, and last the way to the service.
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
	case errors.As(err, &file): // such as that of a session; its number looks like a network's
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

// statusOf returns the HTTP status of the answer that err is about, or 0.
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
	case status >= 500, status == http.StatusRequestTimeout, status < 300: // a 200 whose body is broken
		return fault.Unavailable
	case status >= 400:
		return fault.Invalid
	}
	return fault.Internal
}
