package emulators

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"

	smithy "github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Faults make the first attempt of requests fail, at random: some are throttled
// before they are sent, others are performed and lose their reply. The SDK's
// retries succeed.
type Faults struct {
	mu  sync.Mutex
	rng *rand.Rand
	// Shares of the first attempts.
	ThrottledPercent, LostReplyPercent int
}

// NewFaults returns faults whose order depends on the seed.
func NewFaults(seed uint64, throttled, lost int) *Faults {
	return &Faults{rng: rand.New(rand.NewPCG(seed, 5)), ThrottledPercent: throttled, LostReplyPercent: lost}
}

// Middleware adds the faults to the requests of an SDK client.
func (f *Faults) Middleware(stack *middleware.Stack) error {
	first := true // a stack belongs to one request and its retries
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("faults",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput,
			middleware.Metadata, error) {
			throttle, lose := f.roll(first)
			first = false
			if throttle {
				return middleware.FinalizeOutput{}, middleware.Metadata{},
					&smithy.GenericAPIError{Code: "ThrottlingException", Message: "slow down"}
			}
			out, metadata, err := next.HandleFinalize(ctx, in)
			if err == nil && lose {
				return middleware.FinalizeOutput{}, metadata, &smithyhttp.RequestSendError{Err: io.ErrUnexpectedEOF}
			}
			return out, metadata, err
		}), "Retry", middleware.After)
}

// roll draws the fault of an attempt.
func (f *Faults) roll(first bool) (throttle, lose bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !first {
		return false, false
	}
	n := f.rng.IntN(100)
	return n < f.ThrottledPercent, n >= f.ThrottledPercent && n < f.ThrottledPercent+f.LostReplyPercent
}
