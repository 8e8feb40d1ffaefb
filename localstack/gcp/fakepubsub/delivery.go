package fakepubsub

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// subscription is a subscription with its messages.
type subscription struct {
	config   *pb.Subscription
	messages []*message
}

// message is a message of one subscription.
type message struct {
	*pb.PubsubMessage
	attempts int
	lease    string    // the acknowledgement id of the delivery that holds it; "" while it waits
	until    time.Time // the end of the lease or, while it waits, of the backoff
}

func newSubscription(config *pb.Subscription) *subscription { return &subscription{config: config} }

// defaultDeadline is the ack deadline of a subscription that names none.
const defaultDeadline = 10

// deadline returns the ack deadline.
func (sub *subscription) deadline() time.Duration {
	seconds := sub.config.AckDeadlineSeconds
	if seconds == 0 {
		seconds = defaultDeadline
	}
	return time.Duration(seconds) * time.Second
}

// enqueue gives a topic's subscriptions a message. The caller holds mu.
func (s *Server) enqueue(subs []*subscription, in *pb.PubsubMessage) (id string) {
	s.serial++
	out := proto.Clone(in).(*pb.PubsubMessage)
	out.MessageId, out.PublishTime = fmt.Sprint(s.serial), timestamppb.New(s.clock())
	for _, sub := range subs {
		sub.messages = append(sub.messages, &message{PubsubMessage: out})
		if s.draw(s.options.Faults.Duplicates) {
			sub.messages = append(sub.messages, &message{PubsubMessage: out})
		}
	}
	s.wake()
	return out.MessageId
}

// deliver leases at most n of a subscription's waiting messages, in no order. The
// caller holds mu.
func (s *Server) deliver(sub *subscription, n int) (got []*pb.ReceivedMessage) {
	now := s.clock()
	for _, m := range slices.Clone(sub.messages) {
		if m.lease != "" && !m.until.After(now) {
			s.fail(sub, m, m.until)
		}
	}
	order := s.rng.Perm(len(sub.messages))
	for _, i := range order {
		m := sub.messages[i]
		if m.lease != "" || m.until.After(now) || len(got) == n {
			continue
		}
		m.attempts++
		s.serial++
		m.lease, m.until = leaseID(sub.config.Name, m.MessageId, s.serial), now.Add(sub.deadline())
		r := &pb.ReceivedMessage{AckId: m.lease, Message: m.PubsubMessage}
		if sub.config.DeadLetterPolicy != nil {
			r.DeliveryAttempt = int32(m.attempts)
		}
		got = append(got, r)
	}
	return got
}

// fail ends a delivery that was not acknowledged. The message waits again, or
// becomes a dead letter after its last attempt. The caller holds mu.
func (s *Server) fail(sub *subscription, m *message, at time.Time) {
	m.lease = ""
	dead := sub.config.DeadLetterPolicy
	if dead != nil && m.attempts >= int(dead.MaxDeliveryAttempts) && s.mayForward(sub) {
		sub.remove(m)
		letter := &pb.PubsubMessage{Data: m.Data, Attributes: map[string]string{
			"CloudPubSubDeadLetterSourceSubscription":  sub.config.Name[strings.LastIndexByte(sub.config.Name, '/')+1:],
			"CloudPubSubDeadLetterSourceDeliveryCount": fmt.Sprint(m.attempts),
		}}
		for key, value := range m.Attributes {
			letter.Attributes[key] = value
		}
		s.enqueue(s.topics[dead.DeadLetterTopic], letter)
		return
	}
	m.until = at.Add(sub.backoff(m.attempts))
	s.wake()
}

// mayForward reports whether Pub/Sub may move messages of the subscription to its dead
// letters.
func (s *Server) mayForward(sub *subscription) bool {
	may, topic := s.options.MayForward, sub.config.DeadLetterPolicy.DeadLetterTopic
	return may == nil || may(sub.config.Name, topic)
}

// backoff returns how long a message waits after its nth delivery failed: twice as
// long after each. Without a policy a pulled message does not wait, and pushes slow
// down.
func (sub *subscription) backoff(n int) time.Duration {
	shortest, longest := 100*time.Millisecond, time.Minute
	if policy := sub.config.RetryPolicy; policy != nil {
		shortest, longest = policy.MinimumBackoff.AsDuration(), policy.MaximumBackoff.AsDuration()
	} else if sub.config.PushConfig.GetPushEndpoint() == "" {
		return 0
	}
	return min(longest, shortest<<min(n-1, 20))
}

func (sub *subscription) remove(m *message) {
	sub.messages = slices.DeleteFunc(sub.messages, func(other *message) bool { return other == m })
}

// leaseID returns the acknowledgement id of a delivery. Pub/Sub's have some 200
// characters.
func leaseID(subscription, message string, serial int) string {
	id := fmt.Sprintf("%s|%s|%d|", subscription, message, serial)
	return id + strings.Repeat("x", max(0, 200-len(id)))
}

// find returns the message that an acknowledgement id of the subscription is for.
// holds is false if a later delivery holds it; the message is nil if it is gone. An
// id that is not one of the subscription is InvalidArgument. The caller holds mu.
func (s *Server) find(sub *subscription, id string) (m *message, holds bool, err error) {
	parts := strings.Split(id, "|")
	if len(parts) != 4 || strings.Trim(parts[3], "x") != "" || parts[0] != sub.config.Name {
		return nil, false, status.Errorf(codes.InvalidArgument,
			"You have passed an invalid ack ID to the service (ack_id=%.20s...).", id)
	}
	for _, m := range sub.messages {
		if m.lease == id {
			return m, m.until.After(s.clock()), nil
		}
	}
	for _, m := range sub.messages {
		if m.MessageId == parts[1] {
			return m, false, nil
		}
	}
	return nil, false, nil
}
