package aws

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// TraceAttribute names the attribute of a message of SQS with the trace header of
// the request that sent it. A message that no function sent lacks it.
const TraceAttribute = "AWSTraceHeader"

// traceHeader is the header of a request by which AWS knows the chain of
// invocations that led to the request.
const traceHeader = "X-Amzn-Trace-Id"

// chainKey is the context key of the trace header of the chain that is continued.
type chainKey struct{}

// ContinueChain returns a context whose requests continue one chain of invocations
// of Lambda: that of the message with the trace header, or a new one if the header
// is empty. A function that handles a batch of messages needs one for each group of
// messages that belong together.
//
//	message of run A, header a ─┐                       ┌─▶ requests for run A carry a
//	message of run B, header b ─┴▶ one invocation, a+b ─┴─▶ requests for run B carry b
//
// Lambda stops a function that one event has invoked about 16 times. It counts in
// the part Lineage of the trace header, which lists functions with counts: the SDK
// copies the header of the invocation (_X_AMZN_TRACE_ID) into its requests, SQS keeps
// it as an attribute of the message, and Lambda reads it when the message or the
// request invokes a function. AWS documents neither the format of Lineage, nor when
// Lambda adds the invoked function, nor the Lineage of an invocation by many
// messages. If that is the longest or the sum, neighbours in a batch lengthen each
// other's chains, batch by batch, until Lambda cuts chains without any loop.
//
// A continued chain is therefore the message's header, unchanged. Whatever the format
// and the moment, it lacks no invocation but the one that continues it, so that Lambda
// still cuts a loop that leads through another function. It does not cut a function
// that continues its own messages' chains and sends only to itself.
func ContinueChain(ctx context.Context, header string) context.Context {
	return context.WithValue(ctx, chainKey{}, header)
}

// addChain lets requests continue the chain of their context. Without one they carry
// the header of the SDK, whose middleware runs before.
func addChain(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("rolloutChain",
		func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (
			middleware.BuildOutput, middleware.Metadata, error,
		) {
			header, continued := ctx.Value(chainKey{}).(string)
			if r, ok := in.Request.(*smithyhttp.Request); ok && continued {
				r.Header.Del(traceHeader)
				if header != "" {
					r.Header.Set(traceHeader, encodeTrace(header))
				}
			}
			return next.HandleBuild(ctx, in)
		}), middleware.After)
}

// encodeTrace encodes what a header may not hold, as the SDK does: the bars of a
// Lineage. SQS does not say whether it keeps a header encoded, so escapes stay.
func encodeTrace(header string) string {
	var b strings.Builder
	for i := range len(header) {
		if c := header[i]; c <= ' ' || c == '|' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
