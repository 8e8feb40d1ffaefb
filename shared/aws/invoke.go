package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"golang.org/x/sync/errgroup"

	"rollout/shared/fault"
)

// Functions invokes AWS Lambda functions asynchronously. Lambda stores an event
// until its function has processed it, retries a failed function twice, and then
// sends the event to the function's failure destination.
type Functions struct{ lambda *lambda.Client }

// FunctionOptions configure Functions. The zero value suits production.
type FunctionOptions struct {
	SDK []func(*lambda.Options) // further options of the client, for tests
}

// invokers is the most concurrent requests of one Invoke.
const invokers = 16

// NewFunctions returns the functions of the account; it sends no request.
func NewFunctions(cfg awssdk.Config, o FunctionOptions) *Functions {
	return &Functions{lambda.NewFromConfig(cfg, o.SDK...)}
}

// Invoke calls a function once for each event and does not wait for its result.
// Each event is a JSON document. Like a queue, Invoke delivers at least once and
// in no order; if it fails, some events may have been delivered. It is safe for
// concurrent use.
func (f *Functions) Invoke(ctx context.Context, function string, events [][]byte) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(invokers)
	for _, event := range events {
		group.Go(func() error {
			_, err := f.lambda.Invoke(ctx, &lambda.InvokeInput{
				FunctionName: &function, InvocationType: types.InvocationTypeEvent, Payload: event,
			})
			return f.translate(ctx, function, err)
		})
	}
	return group.Wait()
}

// translate adds a remedy for a missing function to the common translation.
func (f *Functions) translate(ctx context.Context, function string, err error) error {
	err = translate(ctx, err, "call the function %s", function)
	if own, ok := err.(*fault.Error); ok && codeOf(err) == "ResourceNotFoundException" {
		own.Remedy = "deploy the stack, or check cloud.name and cloud.region"
	}
	return err
}
