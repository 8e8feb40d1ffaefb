package fakepubsub

import (
	"context"
	"regexp"
	"strings"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resource matches the resource names of topics and subscriptions.
var resource = regexp.MustCompile(
	`^projects/[a-z][a-z0-9-]*/(topics|subscriptions)/([A-Za-z][A-Za-z0-9._~+%-]{2,254})$`)

// checkResource refuses what is not a name of that kind of resource.
func checkResource(kind, name string) error {
	parts := resource.FindStringSubmatch(name)
	if parts == nil || parts[1] != kind || strings.HasPrefix(parts[2], "goog") {
		return status.Errorf(codes.InvalidArgument, "Invalid [%s] name: (name=%s)", kind, name)
	}
	return nil
}

// CreateTopic makes a topic. Only its name may be set.
func (s *Server) CreateTopic(_ context.Context, in *pb.Topic) (*pb.Topic, error) {
	if err := checkResource("topics", in.Name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.topics[in.Name]; ok {
		return nil, status.Errorf(codes.AlreadyExists, "Resource already exists in the project (resource=%s).", in.Name)
	}
	s.topics[in.Name] = nil
	return in, nil
}

// GetTopic returns a topic.
func (s *Server) GetTopic(_ context.Context, in *pb.GetTopicRequest) (*pb.Topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.topics[in.Topic]; !ok {
		return nil, notFound(in.Topic)
	}
	return &pb.Topic{Name: in.Topic}, nil
}

// CreateSubscription makes a subscription of an existing topic.
func (s *Server) CreateSubscription(_ context.Context, in *pb.Subscription) (*pb.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.subscribe(in); err != nil {
		return nil, err
	}
	return in, nil
}

// GetSubscription returns a subscription as it was created.
func (s *Server) GetSubscription(_ context.Context, in *pb.GetSubscriptionRequest) (*pb.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscriptions[in.Subscription]
	if sub == nil {
		return nil, notFound(in.Subscription)
	}
	return sub.config, nil
}

func notFound(name string) error {
	return status.Errorf(codes.NotFound, "Resource not found (resource=%s).", name)
}

// subscribe makes a subscription. The caller holds mu.
func (s *Server) subscribe(in *pb.Subscription) error {
	if err := checkSubscription(in); err != nil {
		return err
	}
	for _, topic := range []string{in.Topic, in.DeadLetterPolicy.GetDeadLetterTopic()} {
		if _, ok := s.topics[topic]; topic != "" && !ok {
			return notFound(topic)
		}
	}
	if s.subscriptions[in.Name] != nil {
		return status.Errorf(codes.AlreadyExists, "Resource already exists in the project (resource=%s).", in.Name)
	}
	sub := newSubscription(in)
	s.subscriptions[in.Name] = sub
	s.topics[in.Topic] = append(s.topics[in.Topic], sub)
	if in.PushConfig.GetPushEndpoint() != "" {
		s.pushing.Go(func() { s.push(sub) })
	}
	return nil
}

// checkSubscription refuses what Pub/Sub refuses, and what this server does not do.
func checkSubscription(in *pb.Subscription) error {
	if err := checkResource("subscriptions", in.Name); err != nil {
		return err
	}
	if err := checkResource("topics", in.Topic); err != nil {
		return err
	}
	dead, backoff := in.DeadLetterPolicy, in.RetryPolicy
	shortest, longest := backoff.GetMinimumBackoff().AsDuration(), backoff.GetMaximumBackoff().AsDuration()
	switch {
	case in.AckDeadlineSeconds != 0 && (in.AckDeadlineSeconds < 10 || in.AckDeadlineSeconds > 600):
		return status.Errorf(codes.InvalidArgument, "Invalid ack deadline given: %d seconds", in.AckDeadlineSeconds)
	case dead != nil && (dead.MaxDeliveryAttempts < 5 || dead.MaxDeliveryAttempts > 100):
		return status.Errorf(codes.InvalidArgument, "Invalid maximum delivery attempts: %d", dead.MaxDeliveryAttempts)
	case shortest > longest || longest > 600*time.Second:
		return status.Errorf(codes.InvalidArgument, "Invalid retry policy: %v to %v", shortest, longest)
	case in.Filter != "" || in.EnableMessageOrdering || in.EnableExactlyOnceDelivery || in.BigqueryConfig != nil ||
		in.CloudStorageConfig != nil || in.BigtableConfig != nil || in.PushConfig.GetNoWrapper() != nil:
		return status.Error(codes.Unimplemented, "the subscription has an option that this server lacks")
	}
	return nil
}

// topic returns the subscriptions of a topic. The caller holds mu.
func (s *Server) topic(name string) ([]*subscription, error) {
	if err := checkResource("topics", name); err != nil {
		return nil, err
	}
	if _, ok := s.topics[name]; !ok {
		s.createAbsent(name)
	}
	subs, ok := s.topics[name]
	if !ok {
		return nil, notFound(name)
	}
	return subs, nil
}

// pulled returns a subscription without an endpoint. The caller holds mu.
func (s *Server) pulled(name string) (*subscription, error) {
	if err := checkResource("subscriptions", name); err != nil {
		return nil, err
	}
	if s.subscriptions[name] == nil {
		s.createAbsent(name)
	}
	switch sub := s.subscriptions[name]; {
	case sub == nil:
		return nil, notFound(name)
	case sub.config.PushConfig.GetPushEndpoint() != "":
		return nil, status.Error(codes.FailedPrecondition, "This method is not supported for this subscription type (push).")
	default:
		return sub, nil
	}
}

// createAbsent makes the subscription of Options.Absent, with its topics. The
// caller holds mu.
func (s *Server) createAbsent(name string) {
	if s.options.Absent == nil {
		return
	}
	parts := strings.Split(name, "/")
	in := s.options.Absent(parts[1], parts[3])
	if dead := in.DeadLetterPolicy.GetDeadLetterTopic(); dead != "" {
		if _, ok := s.topics[dead]; !ok {
			s.createAbsent(dead)
		}
	}
	if _, ok := s.topics[in.Topic]; !ok {
		s.topics[in.Topic] = nil
	}
	if err := s.subscribe(in); err != nil {
		panic("the test's Absent returns a bad subscription: " + err.Error())
	}
}

// Queue returns an Options.Absent for the queues of rollout: a name ending in
// "-dead" is a queue of dead letters, and any other one has such a queue, to which
// messages go after that many attempts.
func Queue(attempts int32) func(project, name string) *pb.Subscription {
	return func(project, name string) *pb.Subscription {
		in := &pb.Subscription{Name: "projects/" + project + "/subscriptions/" + name,
			Topic: "projects/" + project + "/topics/" + name, AckDeadlineSeconds: 30}
		if !strings.HasSuffix(name, "-dead") {
			in.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: in.Topic + "-dead", MaxDeliveryAttempts: attempts}
		}
		return in
	}
}
