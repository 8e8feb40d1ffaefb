package fakepubsub

import (
	"context"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Limits of Pub/Sub.
const (
	maxPublish      = 1000 // messages of one request
	maxPublishBytes = 10 << 20
	maxAckBytes     = 512 << 10 // bytes of a request with acknowledgement ids
	maxDeadline     = 600       // seconds
	maxAttributes   = 100
	maxAttribute    = 1024 // bytes of an attribute's value
	maxOrderingKey  = 1024 // bytes
)

// Publish puts messages into a topic.
func (s *Server) Publish(_ context.Context, in *pb.PublishRequest) (*pb.PublishResponse, error) {
	if n := len(in.Messages); n == 0 || n > maxPublish {
		return nil, status.Errorf(codes.InvalidArgument, "The value for message_count is %d. You must pass 1 to 1000.", n)
	}
	if size := proto.Size(in); size > maxPublishBytes {
		return nil, status.Errorf(codes.InvalidArgument, "The value for request_size is too large: %d", size)
	}
	for _, m := range in.Messages {
		if err := checkMessage(m); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	subs, err := s.topic(in.Topic)
	if err != nil {
		return nil, err
	}
	for _, m := range in.Messages {
		if s.options.Published == nil {
			break
		}
		if err := s.options.Published(in.Topic, m); err != nil {
			return nil, err
		}
	}
	out := &pb.PublishResponse{}
	for _, m := range in.Messages {
		out.MessageIds = append(out.MessageIds, s.enqueue(subs, m))
	}
	return out, s.reply()
}

func checkMessage(m *pb.PubsubMessage) error {
	switch {
	case len(m.Data) == 0 && len(m.Attributes) == 0:
		return status.Error(codes.InvalidArgument, "One or more messages in the publish request is empty.")
	case len(m.Attributes) > maxAttributes:
		return status.Errorf(codes.InvalidArgument, "A message has %d attributes", len(m.Attributes))
	case len(m.OrderingKey) > maxOrderingKey:
		return status.Errorf(codes.InvalidArgument, "The ordering key has %d bytes", len(m.OrderingKey))
	}
	for key, value := range m.Attributes {
		if key == "" || len(key) > 256 || len(value) > maxAttribute {
			return status.Errorf(codes.InvalidArgument, "The attribute %.20q is too long", key)
		}
	}
	return nil
}

// Pull returns messages of a subscription. It waits for the first one.
func (s *Server) Pull(ctx context.Context, in *pb.PullRequest) (*pb.PullResponse, error) {
	if in.MaxMessages < 1 {
		return nil, status.Errorf(codes.InvalidArgument, "The value for max_messages is %d", in.MaxMessages)
	}
	for end := time.Now().Add(s.options.PullWait); ; {
		got, next, err := s.tryPull(in)
		switch {
		case err != nil || len(got) > 0:
			return &pb.PullResponse{ReceivedMessages: got}, err
		case ctx.Err() != nil:
			return nil, status.FromContextError(ctx.Err()).Err()
		case !time.Now().Before(end):
			return &pb.PullResponse{}, nil
		}
		if next.at.IsZero() || next.at.After(end) {
			next.at = end
		}
		next.wait(ctx)
	}
}

// tryPull leases the messages that can be delivered now, or returns when to look
// again.
func (s *Server) tryPull(in *pb.PullRequest) ([]*pb.ReceivedMessage, look, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.pulled(in.Subscription)
	if err != nil {
		return nil, look{}, err
	}
	return s.deliver(sub, int(in.MaxMessages)), s.next(sub), nil
}

// look says when a subscription may have a message to deliver.
type look struct {
	changed <-chan struct{} // something changed
	at      time.Time       // the end of a lease or backoff; zero if none ends by itself
}

// next returns when to look at a subscription again. The caller holds mu.
func (s *Server) next(sub *subscription) look {
	l := look{changed: s.changed}
	for _, m := range sub.messages {
		if !s.options.Manual && (l.at.IsZero() || m.until.Before(l.at)) {
			l.at = m.until
		}
	}
	return l
}

// wait returns when it is time to look again, or ctx ends.
func (l look) wait(ctx context.Context) {
	var due <-chan time.Time
	if !l.at.IsZero() {
		timer := time.NewTimer(time.Until(l.at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-l.changed:
	case <-due:
	case <-ctx.Done():
	}
}

// ModifyAckDeadline moves the deadline of deliveries; 0 ends them. An expired
// delivery stays as it is.
func (s *Server) ModifyAckDeadline(_ context.Context, in *pb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	if in.AckDeadlineSeconds < 0 || in.AckDeadlineSeconds > maxDeadline {
		return nil, status.Errorf(codes.InvalidArgument, "Invalid ack deadline given: %d seconds", in.AckDeadlineSeconds)
	}
	return s.settle(in, in.Subscription, in.AckIds, func(sub *subscription, m *message, holds bool) {
		switch now := s.clock(); {
		case !holds:
		case in.AckDeadlineSeconds == 0:
			s.fail(sub, m, now)
		default:
			m.until = now.Add(time.Duration(in.AckDeadlineSeconds) * time.Second)
			s.wake()
		}
	})
}

// Acknowledge removes messages. An expired delivery's message may be removed.
func (s *Server) Acknowledge(_ context.Context, in *pb.AcknowledgeRequest) (*emptypb.Empty, error) {
	return s.settle(in, in.Subscription, in.AckIds, func(sub *subscription, m *message, holds bool) {
		if holds || s.draw(s.options.Faults.StaleAcks) {
			sub.remove(m)
		}
	})
}

// settle calls apply for the message of each acknowledgement id, unless it is gone.
// holds tells whether the id's delivery still holds the message.
func (s *Server) settle(in proto.Message, name string, ids []string, apply func(*subscription, *message, bool)) (
	*emptypb.Empty, error,
) {
	if len(ids) == 0 {
		return nil, status.Error(codes.InvalidArgument, "You have not specified an ack ID in the request.")
	}
	if size := proto.Size(in); size > maxAckBytes {
		return nil, status.Errorf(codes.InvalidArgument, "Request payload size exceeds the limit: %d bytes.", size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.pulled(name)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, _, err := s.find(sub, id); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if m, holds, _ := s.find(sub, id); m != nil {
			apply(sub, m, holds)
		}
	}
	return &emptypb.Empty{}, s.reply()
}

// reply returns the error of a reply that is lost, at random. The caller holds mu.
func (s *Server) reply() error {
	if s.draw(s.options.Faults.LostReplies) {
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	return nil
}
