package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"golang.org/x/sync/errgroup"

	"rollout/shared/fault"
)

// Functions are functions of AWS Lambda, called with events that they answer to
// nobody. Lambda keeps an event until its function has taken it, tries a
// function that fails twice more, and then sends the event where the function's
// failures go.
type Functions struct{ lambda *lambda.Client }

// FunctionOptions are what Functions may be told for tests.
type FunctionOptions struct {
	SDK []func(*lambda.Options) // further options of the client
}

// invokers is how many events of one Invoke are on their way at once.
const invokers = 16

// NewFunctions returns the functions of the account; it asks for nothing yet.
func NewFunctions(cfg awssdk.Config, o FunctionOptions) *Functions {
	return &Functions{lambda.NewFromConfig(cfg, o.SDK...)}
}

// Invoke calls a function once for each event, which is JSON. Like a queue it
// delivers at least once and in no order, and some events may have been taken
// when it fails. Safe for concurrent use.
func (f *Functions) Invoke(ctx context.Context, function string, events [][]byte) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(invokers)
	for _, event := range events {
		group.Go(func() error {
			_, err := f.lambda.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, InvocationType: types.InvocationTypeEvent, Payload: event})
			return f.translate(ctx, function, err)
		})
	}
	return group.Wait()
}

// translate also says what to do about a function that is not there.
func (f *Functions) translate(ctx context.Context, function string, err error) error {
	err = translate(ctx, err, "call the function %s", function)
	if own, ok := err.(*fault.Error); ok && codeOf(err) == "ResourceNotFoundException" {
		own.Remedy = "deploy the stack, or look at cloud.name and cloud.region"
	}
	return err
}
