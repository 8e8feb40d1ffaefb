package gcp

import (
	"context"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"

	"rollout/events"
	"rollout/shared/fault"
)

// EventTopic publishes CloudEvents to a topic of Pub/Sub, to which people subscribe. It is
// safe for concurrent use.
//
// A message is the whole CloudEvent in JSON. Its ordering key is the event's subject, a run or
// a pool, so that a subscription with message ordering gets the events of each subject in
// order. Filters of subscriptions find its type and its subject as attributes.
type EventTopic struct{ queues *Queues }

// Attributes of the messages of an EventTopic.
const (
	contentTypeAttribute = "content-type" // of CloudEvents in structured mode
	eventTypeAttribute   = "type"
	subjectAttribute     = "subject"

	cloudEventType = "application/cloudevents+json"
)

// NewEventTopic returns the topic with the prefix of the queues' topics. It sends no request.
func NewEventTopic(q *Queues) *EventTopic { return &EventTopic{q} }

// Name returns "pubsub".
func (*EventTopic) Name() string { return "pubsub" }

// Deliver publishes one event, a CloudEvent in JSON. Invalid means that the event is not one.
// All other errors may pass.
func (t *EventTopic) Deliver(ctx context.Context, event []byte) error {
	e, _, err := events.Decode(event)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "read the event")
	}
	_, err = t.queues.topics.Publish(ctx, &pb.PublishRequest{
		Topic: t.queues.topic(EventsTopic),
		Messages: []*pb.PubsubMessage{{Data: event, OrderingKey: e.Subject, Attributes: map[string]string{
			contentTypeAttribute: cloudEventType, eventTypeAttribute: string(e.Type), subjectAttribute: e.Subject,
		}}},
	}, gax.WithRetry(func() gax.Retryer { return gax.OnCodes(nil, gax.Backoff{}) })) // the caller repeats it
	err = t.queues.translate(ctx, err, "publish an event")
	if own, ok := err.(*fault.Error); ok && own.Kind == fault.Invalid {
		own.Kind = fault.Denied // something else than the event is wrong, and may be mended
	}
	return err
}
