package aws

import (
	"context"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/clock"
)

// maxSkew is how far a clock may be from the services' to be taken for right:
// their answers tell whole seconds, and take their time.
const maxSkew = 3 * time.Second

// Clock is the time of the services, which each of their answers tells. To
// somebody whose own clock is minutes ahead, everybody who is alive there would
// seem to be dead. Until the first answer it is its machine's.
type Clock struct {
	machine clock.Clock
	ahead   atomic.Int64 // by how much the services' are, in nanoseconds
}

var _ clock.Clock = (*Clock)(nil)

// NewClock returns the clock of whoever hears the answers that Listen is told of.
func NewClock(machine clock.Clock) *Clock { return &Clock{machine: machine} }

// Now is the time there; see clock.Clock.
func (c *Clock) Now() time.Time { return c.machine.Now().Add(time.Duration(c.ahead.Load())) }

// AddMiddleware adds the clock to a client's requests; it is one of the SDK's
// APIOptions.
func (c *Clock) AddMiddleware(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("rolloutClock",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleInitialize(ctx, in)
			if theirs, ok := awsmiddleware.GetServerTime(metadata); ok {
				c.hear(theirs)
			}
			return out, metadata, err
		}), middleware.Before)
}

func (c *Clock) hear(theirs time.Time) {
	ahead := theirs.Sub(c.machine.Now())
	if ahead.Abs() <= maxSkew {
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
}
