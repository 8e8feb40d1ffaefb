package emulators

import (
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/events"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

// topicName is the resource name of the topic of events, and told is a run.
const (
	topicName = "projects/test-project/topics/rollout-" + gcp.EventsTopic
	told      = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
)

// openTopic opens the topic of events of a server.
func openTopic(t *testing.T, s *fakepubsub.Server) *gcp.EventTopic {
	t.Helper()
	q, err := gcp.NewQueues(t.Context(), emulated(), gcp.QueueOptions{Prefix: "rollout-", SDK: s.ClientOptions()})
	if err != nil {
		t.Fatal(err)
	}
	return gcp.NewEventTopic(q)
}

// anEvent is an event that people are told.
func anEvent(t *testing.T) []byte {
	t.Helper()
	b, err := events.Encode(events.RunPaused{Run: told, Phase: "paused", Reason: "the input is gone"},
		events.Meta{ID: told + ".1", Source: "rollout/acme", Subject: told, Time: time.Unix(1772366400, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Subscriptions with message ordering get the events of a subject in their order by its key,
// and filter by attributes.
func TestAMessageOfTheTopicIsTheWholeCloudEvent(t *testing.T) {
	t.Parallel()
	var got []*pb.PubsubMessage
	s := fakepubsub.Start(t, fakepubsub.Options{Published: func(topic string, m *pb.PubsubMessage) error {
		if topic != topicName {
			t.Errorf("it is published to %s", topic)
		}
		got = append(got, m)
		return nil
	}})
	if _, err := s.CreateTopic(t.Context(), &pb.Topic{Name: topicName}); err != nil {
		t.Fatal(err)
	}
	event := anEvent(t)
	if err := openTopic(t, s).Deliver(t.Context(), event); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if m := got[0]; string(m.Data) != string(event) || m.OrderingKey != told ||
		m.Attributes["content-type"] != "application/cloudevents+json" ||
		m.Attributes["type"] != string(events.TypeRunPaused) || m.Attributes["subject"] != told {
		t.Errorf("the message is %v", m)
	}
}

// An event that is not published is delivered later, unless it is not an event.
func TestEventsThatTheTopicDoesNotTakeAreErrors(t *testing.T) {
	t.Parallel()
	s := fakepubsub.Start(t, fakepubsub.Options{Published: func(string, *pb.PubsubMessage) error {
		return status.Error(codes.InvalidArgument, "so it says")
	}})
	topic := openTopic(t, s)
	if err := topic.Deliver(t.Context(), anEvent(t)); !fault.Is(err, fault.NotFound) {
		t.Errorf("without a topic: %v", err)
	}
	if _, err := s.CreateTopic(t.Context(), &pb.Topic{Name: topicName}); err != nil {
		t.Fatal(err)
	}
	if err := topic.Deliver(t.Context(), anEvent(t)); !fault.Is(err, fault.Denied) {
		t.Errorf("of a request that is refused: %v", err)
	}
	if err := topic.Deliver(t.Context(), []byte("{}")); !fault.Is(err, fault.Invalid) {
		t.Errorf("of what is no event: %v", err)
	}
}
