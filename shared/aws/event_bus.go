package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	smithy "github.com/aws/smithy-go"

	"rollout/events"
	"rollout/shared/fault"
)

// EventBus puts CloudEvents on a bus of Amazon EventBridge, from which rules lead them to
// people and programs. It is safe for concurrent use.
//
// A rule sees the event's source as source, its type as detail-type, and the whole
// CloudEvent as detail. EventBridge keeps no order: consumers order the events of a subject
// by detail.sequence, and know a repeated one by detail.id.
type EventBus struct {
	client *eventbridge.Client
	name   string
}

// EventBusOptions configure an EventBus. The zero value suits production.
type EventBusOptions struct {
	SDK []func(*eventbridge.Options) // further options of the client, for tests
}

// NewEventBus returns the bus of the name. It sends no request.
func NewEventBus(cfg awssdk.Config, name string, o EventBusOptions) *EventBus {
	return &EventBus{eventbridge.NewFromConfig(cfg, o.SDK...), name}
}

// Name returns "eventbridge".
func (*EventBus) Name() string { return "eventbridge" }

// Deliver puts one event, a CloudEvent in JSON, on the bus. Invalid means that EventBridge
// will never take it. All other errors may pass.
func (b *EventBus) Deliver(ctx context.Context, event []byte) error {
	e, _, err := events.Decode(event)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "read the event")
	}
	out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
		EventBusName: &b.name, Source: &e.Source, DetailType: awssdk.String(string(e.Type)),
		Detail: awssdk.String(string(event)), Time: &e.Time,
	}}})
	if err == nil {
		err = putFailure(out)
	}
	err = translate(ctx, err, "put an event on the bus %s", b.name)
	own, ok := err.(*fault.Error)
	switch {
	case !ok:
	case codeOf(err) == "MalformedDetail":
		own.Kind = fault.Invalid
	case own.Kind == fault.Invalid: // something else than the event is wrong, and may be mended
		own.Kind = fault.Denied
	case own.Kind == fault.NotFound:
		own.Remedy = "deploy the stack, or check cloud.name and cloud.region"
	case own.Kind == fault.Internal: // a code that is not known
		own.Kind = fault.Unavailable
	}
	return err
}

// putFailure returns the error of an entry that EventBridge did not take, which it answers
// with 200.
func putFailure(out *eventbridge.PutEventsOutput) error {
	for _, entry := range out.Entries {
		if entry.ErrorCode != nil {
			return &smithy.GenericAPIError{Code: *entry.ErrorCode, Message: awssdk.ToString(entry.ErrorMessage)}
		}
	}
	if out.FailedEntryCount > 0 {
		return &smithy.GenericAPIError{Code: "InternalFailure", Message: "the event was not taken, and no reason is given"}
	}
	return nil
}
