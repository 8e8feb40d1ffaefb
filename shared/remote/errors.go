package remote

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/shared/fault"
	"rollout/shared/remote/portsv1"
)

// kinds is the one table of kinds of errors and their status codes.
var kinds = []struct {
	kind fault.Kind
	code codes.Code
}{
	{fault.Internal, codes.Internal},
	{fault.Invalid, codes.InvalidArgument},
	{fault.NotFound, codes.NotFound},
	{fault.Conflict, codes.Aborted},
	{fault.Throttled, codes.ResourceExhausted},
	{fault.Unavailable, codes.Unavailable},
	{fault.Exhausted, codes.OutOfRange},
	{fault.Denied, codes.PermissionDenied},
	{fault.Corrupt, codes.DataLoss},
	{fault.Fenced, codes.FailedPrecondition},
	{fault.Canceled, codes.Canceled},
}

// unidentified is the code of a call whose caller has no valid certificate. It is not
// PermissionDenied, which a caller gets for a single request.
const unidentified = codes.Unauthenticated

// maxMessage bounds the text of an error on the wire, in bytes.
const maxMessage = 4 << 10

// StatusOf returns the error as servers send it. A nil error is nil.
func StatusOf(err error) error { return statusOf(codeOf(fault.KindOf(err)), err) }

// Unidentified returns the error of a call whose caller is not, or no longer, a worker of the
// installation.
func Unidentified(err error) error { return statusOf(unidentified, err) }

func codeOf(k fault.Kind) codes.Code {
	for _, row := range kinds {
		if row.kind == k {
			return row.code
		}
	}
	return codes.Internal
}

func statusOf(code codes.Code, err error) error {
	if err == nil {
		return nil
	}
	message := err.Error()
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	s := status.New(code, valid(message))
	detailed, detailErr := s.WithDetails(&portsv1.Fault{Kind: fault.KindOf(err).String(), Message: valid(message),
		Remedy: valid(fault.RemedyOf(err)), RetryAfter: int64(fault.RetryAfter(err))})
	if detailErr == nil {
		s = detailed
	}
	return s.Err()
}

// errorOf returns what a call of the context ended with, as an error of package fault.
func errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, ctx.Err(), "")
	}
	s, ok := status.FromError(err)
	if !ok {
		return fault.WithKind(fault.Unavailable, err, "")
	}
	for _, d := range s.Details() {
		if f, ok := d.(*portsv1.Fault); ok {
			kind := kindNamed(f.GetKind())
			if kind == fault.Canceled { // the server gave up, at the call's deadline or its own end
				kind = fault.Unavailable
			}
			return &fault.Error{Kind: kind, Remedy: f.GetRemedy(), Err: errors.New(withoutRepeat(f)),
				RetryAfter: max(0, time.Duration(f.GetRetryAfter()))}
		}
	}
	// Without a detail it is of the transport, or of a server's own limits.
	switch s.Code() {
	case codes.ResourceExhausted, codes.InvalidArgument, codes.Unimplemented:
		return fault.New(fault.Invalid, "%s", s.Message())
	case unidentified, codes.PermissionDenied:
		return fault.New(fault.Denied, "%s", s.Message())
	}
	return fault.New(fault.Unavailable, "the connection to the installation: %s", innerCause(s.Message()))
}

// innerCause returns the cause within what gRPC says about a connection.
// Example: `connection error: desc = "transport: Error while dialing: dial tcp: refused"`.
func innerCause(message string) string {
	if _, quoted, ok := strings.Cut(message, "desc = "); ok {
		if text, err := strconv.Unquote(quoted); err == nil {
			message = text
		}
	}
	for _, prefix := range []string{"transport: ", "Error while dialing: ", "authentication handshake failed: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	return message
}

// withoutRepeat removes the remedy from the end of a fault's message, where the text of an error
// with a remedy has it in brackets.
func withoutRepeat(f *portsv1.Fault) string {
	return strings.TrimSuffix(f.GetMessage(), " ("+f.GetRemedy()+")")
}

// kindNamed returns the kind of that name. A newer server may have others: they are Unavailable,
// so that the worker goes on.
func kindNamed(name string) fault.Kind {
	for _, row := range kinds {
		if row.kind.String() == name {
			return row.kind
		}
	}
	return fault.Unavailable
}

// valid returns the text as protobuf takes it: valid UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
