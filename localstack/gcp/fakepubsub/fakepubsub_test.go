package fakepubsub

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	topic            = "projects/p/topics/work"
	workSubscription = "projects/p/subscriptions/work"
	deadTopic        = "projects/p/topics/work-dead"
)

// client calls a server as the official SDK does.
type client struct {
	*testing.T
	*Server
	topics        *pubsub.TopicAdminClient
	subscriptions *pubsub.SubscriptionAdminClient
}

// newClient returns a client of a server with the topic, and its topic of dead
// letters.
func newClient(t *testing.T, o Options) client {
	t.Helper()
	c := client{T: t, Server: Start(t, o)}
	var err error
	if c.topics, err = pubsub.NewTopicAdminClient(t.Context(), c.ClientOptions()...); err != nil {
		t.Fatal(err)
	}
	if c.subscriptions, err = pubsub.NewSubscriptionAdminClient(t.Context(), c.ClientOptions()...); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{topic, deadTopic} {
		if _, err := c.topics.CreateTopic(t.Context(), &pb.Topic{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// subscribe makes a subscription of the topic.
func (c client) subscribe(change func(*pb.Subscription)) {
	c.Helper()
	in := &pb.Subscription{Name: workSubscription, Topic: topic, AckDeadlineSeconds: 10}
	change(in)
	if _, err := c.subscriptions.CreateSubscription(c.Context(), in); err != nil {
		c.Fatal(err)
	}
}

func asItIs(*pb.Subscription) {}

func (c client) publish(bodies ...string) error {
	in := &pb.PublishRequest{Topic: topic}
	for _, body := range bodies {
		in.Messages = append(in.Messages, &pb.PubsubMessage{Data: []byte(body)})
	}
	_, err := c.topics.Publish(c.Context(), in, once())
	return err
}

// once sends a request without repetitions.
func once() gax.CallOption {
	return gax.WithRetry(func() gax.Retryer { return gax.OnCodes(nil, gax.Backoff{}) })
}

func (c client) pull(from string) []*pb.ReceivedMessage {
	c.Helper()
	out, err := c.subscriptions.Pull(c.Context(), &pb.PullRequest{Subscription: from, MaxMessages: 1000})
	if err != nil {
		c.Fatal(err)
	}
	return out.ReceivedMessages
}

// pullOne returns the one message that a pull must return.
func (c client) pullOne(attempt int32) *pb.ReceivedMessage {
	c.Helper()
	got := c.pull(workSubscription)
	if len(got) != 1 || got[0].DeliveryAttempt != attempt {
		c.Fatalf("pulled %v, want one message of attempt %d", got, attempt)
	}
	return got[0]
}

func (c client) nack(id string) {
	c.Helper()
	if err := c.modify(id, 0); err != nil {
		c.Fatal(err)
	}
}

func (c client) modify(id string, seconds int32) error {
	return c.subscriptions.ModifyAckDeadline(c.Context(), &pb.ModifyAckDeadlineRequest{
		Subscription: workSubscription, AckIds: []string{id}, AckDeadlineSeconds: seconds,
	}, once())
}

func (c client) ack(ids ...string) error {
	return c.subscriptions.Acknowledge(c.Context(),
		&pb.AcknowledgeRequest{Subscription: workSubscription, AckIds: ids}, once())
}

func wantCode(t *testing.T, err error, want codes.Code, what string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

// manual are options of a server whose clock the test moves.
var manual = Options{Manual: true, PullWait: time.Millisecond}

func TestDeadlinesDecideWhenAMessageReturns(t *testing.T) {
	t.Parallel()
	c := newClient(t, manual)
	c.subscribe(asItIs)
	if err := c.publish("x"); err != nil {
		t.Fatal(err)
	}
	first := c.pullOne(0)
	c.Advance(9 * time.Second)
	if err := c.modify(first.AckId, 30); err != nil {
		t.Fatal(err)
	}
	c.Advance(29 * time.Second)
	if got := c.pull(workSubscription); len(got) > 0 {
		t.Errorf("the message returned before its deadline: %v", got)
	}
	c.Advance(time.Second)
	second := c.pullOne(0)
	if second.AckId == first.AckId || second.Message.MessageId != first.Message.MessageId {
		t.Errorf("delivered %v, and again %v", first, second)
	}
	if err := c.modify(first.AckId, 0); err != nil {
		t.Errorf("an expired id is refused: %v", err)
	}
	if got := c.pull(workSubscription); len(got) > 0 {
		t.Errorf("an expired id gave the message back: %v", got)
	}
	if err := c.ack(second.AckId); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	if got := c.pull(workSubscription); len(got) > 0 {
		t.Errorf("the acknowledged message returned: %v", got)
	}
}

func TestStaleAcknowledgementsMayTakeEffect(t *testing.T) {
	t.Parallel()
	for percent, want := range map[int]int{0: 1, 100: 0} {
		c := newClient(t, Options{Manual: true, PullWait: time.Millisecond, Faults: Faults{StaleAcks: percent}})
		c.subscribe(asItIs)
		if err := c.publish("x"); err != nil {
			t.Fatal(err)
		}
		first := c.pullOne(0)
		c.Advance(10 * time.Second)
		c.pullOne(0)
		if err := c.ack(first.AckId); err != nil {
			t.Fatal(err)
		}
		c.Advance(10 * time.Second)
		if got := c.pull(workSubscription); len(got) != want {
			t.Errorf("with %d percent of stale acknowledgements, %d messages are left, want %d", percent, len(got), want)
		}
	}
}

func TestDeadLettersAreFinite(t *testing.T) {
	t.Parallel()
	c := newClient(t, manual)
	c.subscribe(func(s *pb.Subscription) {
		s.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: deadTopic, MaxDeliveryAttempts: 5}
	})
	dead := &pb.Subscription{Name: "projects/p/subscriptions/dead", Topic: deadTopic}
	if _, err := c.subscriptions.CreateSubscription(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	if err := c.publish("x"); err != nil {
		t.Fatal(err)
	}
	for attempt := range int32(5) {
		m := c.pullOne(attempt + 1)
		if attempt == 2 {
			c.Advance(10 * time.Second) // an expired deadline counts as well
			continue
		}
		c.nack(m.AckId)
	}
	if got := c.pull(workSubscription); len(got) > 0 {
		t.Errorf("a sixth delivery: %v", got)
	}
	letters := c.pull(dead.Name)
	if len(letters) != 1 || string(letters[0].Message.Data) != "x" ||
		letters[0].Message.Attributes["CloudPubSubDeadLetterSourceDeliveryCount"] != "5" {
		t.Errorf("the dead letters are %v", letters)
	}
}

func TestRetryPolicyDelaysARedelivery(t *testing.T) {
	t.Parallel()
	c := newClient(t, manual)
	c.subscribe(func(s *pb.Subscription) {
		s.RetryPolicy = &pb.RetryPolicy{
			MinimumBackoff: durationpb.New(10 * time.Second), MaximumBackoff: durationpb.New(15 * time.Second),
		}
	})
	if err := c.publish("x"); err != nil {
		t.Fatal(err)
	}
	for _, backoff := range []time.Duration{10 * time.Second, 15 * time.Second} {
		c.nack(c.pullOne(0).AckId)
		c.Advance(backoff - time.Second)
		if got := c.pull(workSubscription); len(got) > 0 {
			t.Fatalf("it returned before its backoff of %v", backoff)
		}
		c.Advance(time.Second)
	}
	c.pullOne(0)
}

func TestLimitsArePubSubs(t *testing.T) {
	t.Parallel()
	c := newClient(t, manual)
	c.subscribe(asItIs)
	wantCode(t, c.publish(make([]string, 1001)...), codes.InvalidArgument, "1,001 messages")
	wantCode(t, c.publish(""), codes.InvalidArgument, "an empty message")
	wantCode(t, c.publish(strings.Repeat("x", 10<<20)), codes.InvalidArgument, "a message of 10 MiB")
	wantCode(t, c.ack(), codes.InvalidArgument, "no ids")
	wantCode(t, c.ack("nonsense"), codes.InvalidArgument, "an id that Pub/Sub never gave")
	if err := c.publish("x"); err != nil {
		t.Fatal(err)
	}
	id := c.pullOne(0).AckId
	if len(id) < 200 {
		t.Errorf("an id has %d bytes", len(id))
	}
	wantCode(t, c.modify(id, 601), codes.InvalidArgument, "a deadline of 601 s")
	many := make([]string, 3000)
	for i := range many {
		many[i] = id
	}
	wantCode(t, c.ack(many...), codes.InvalidArgument, "3,000 ids")
	_, err := c.topics.GetTopic(t.Context(), &pb.GetTopicRequest{Topic: topic + "x"}, once())
	wantCode(t, err, codes.NotFound, "an absent topic")
	for what, change := range map[string]func(*pb.Subscription){
		"a deadline of 9 s":  func(s *pb.Subscription) { s.AckDeadlineSeconds = 9 },
		"a deadline of 11 m": func(s *pb.Subscription) { s.AckDeadlineSeconds = 660 },
		"four attempts": func(s *pb.Subscription) {
			s.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: deadTopic, MaxDeliveryAttempts: 4}
		},
		"a reserved name": func(s *pb.Subscription) { s.Name = "projects/p/subscriptions/google" },
		"a short name":    func(s *pb.Subscription) { s.Name = "projects/p/subscriptions/ab" },
	} {
		in := &pb.Subscription{Name: workSubscription + "2", Topic: topic}
		change(in)
		_, err := c.subscriptions.CreateSubscription(t.Context(), in)
		wantCode(t, err, codes.InvalidArgument, what)
	}
}

func TestPushCarriesTheDeliveryAndItsToken(t *testing.T) {
	t.Parallel()
	type delivery struct {
		body  map[string]any
		token string
	}
	got := make(chan delivery, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := delivery{token: r.Header.Get("Authorization")}
		_ = json.NewDecoder(r.Body).Decode(&d.body)
		got <- d
		if d.body["deliveryAttempt"] == 1.0 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	c := newClient(t, Options{})
	c.subscribe(func(s *pb.Subscription) {
		token := &pb.PushConfig_OidcToken{ServiceAccountEmail: "push@p.iam", Audience: "plan"}
		s.PushConfig = &pb.PushConfig{PushEndpoint: endpoint.URL,
			AuthenticationMethod: &pb.PushConfig_OidcToken_{OidcToken: token}}
		s.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: deadTopic, MaxDeliveryAttempts: 5}
	})
	if err := c.publish("x"); err != nil {
		t.Fatal(err)
	}
	first, second := <-got, <-got // the first is refused, and sent again
	message := second.body["message"].(map[string]any)
	if first.body["deliveryAttempt"] != 1.0 || second.body["deliveryAttempt"] != 2.0 ||
		second.body["subscription"] != workSubscription || message["data"] != "eA==" ||
		message["messageId"] != first.body["message"].(map[string]any)["messageId"] {
		t.Errorf("the pushes are %v and %v", first.body, second.body)
	}
	parts := strings.Split(strings.TrimPrefix(second.token, "Bearer "), ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || len(parts) != 3 || !strings.Contains(string(claims), `"email":"push@p.iam"`) ||
		!strings.Contains(string(claims), `"aud":"plan"`) {
		t.Errorf("the token is %q with the claims %s, %v", second.token, claims, err)
	}
	_, err = c.subscriptions.Pull(t.Context(), &pb.PullRequest{Subscription: workSubscription, MaxMessages: 1}, once())
	wantCode(t, err, codes.FailedPrecondition, "a pull of a subscription with an endpoint")
}

func TestDuplicatesAndLostRepliesAreAsAskedFor(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{Manual: true, PullWait: time.Millisecond, Faults: Faults{Duplicates: 100, LostReplies: 100}})
	c.subscribe(asItIs)
	wantCode(t, c.publish("x"), codes.Unavailable, "a publish whose reply is lost")
	got := c.pull(workSubscription)
	if len(got) != 2 || got[0].Message.MessageId != got[1].Message.MessageId || got[0].AckId == got[1].AckId {
		t.Fatalf("pulled %v, want one message twice", got)
	}
	wantCode(t, c.ack(got[0].AckId), codes.Unavailable, "an acknowledgement whose reply is lost")
	c.Advance(time.Minute)
	if got := c.pull(workSubscription); len(got) != 1 {
		t.Errorf("%d of the two deliveries are left after one was acknowledged", len(got))
	}
}

// A message stays in its subscription while Pub/Sub may not move it to the dead letters.
func TestDeadLettersStayWithoutTheRightToMoveThem(t *testing.T) {
	t.Parallel()
	allowed := false
	s := Start(t, Options{Absent: Queue(5), PullWait: time.Millisecond,
		MayForward: func(subscription, topic string) bool {
			return allowed && strings.HasSuffix(subscription, "/letters") && strings.HasSuffix(topic, "/letters-dead")
		}})
	const queue, dead = "projects/p123/subscriptions/letters", "projects/p123/subscriptions/letters-dead"
	if _, err := s.Pull(t.Context(), &pb.PullRequest{Subscription: queue, MaxMessages: 1}); err != nil {
		t.Fatal(err)
	}
	publish := &pb.PublishRequest{Topic: "projects/p123/topics/letters",
		Messages: []*pb.PubsubMessage{{Data: []byte("x")}}}
	if _, err := s.Publish(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	fail := func() {
		got, err := s.Pull(t.Context(), &pb.PullRequest{Subscription: queue, MaxMessages: 1})
		if err != nil || len(got.ReceivedMessages) != 1 {
			t.Fatalf("the message is gone: %v, %v", got, err)
		}
		if _, err := s.ModifyAckDeadline(t.Context(), &pb.ModifyAckDeadlineRequest{Subscription: queue,
			AckIds: []string{got.ReceivedMessages[0].AckId}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 7 {
		fail()
	}
	if n := s.Waiting(queue); n != 1 {
		t.Errorf("%d messages wait, want the one that may not be moved", n)
	}
	allowed = true
	fail()
	if n, moved := s.Waiting(queue), s.Waiting(dead); n != 0 || moved != 1 {
		t.Errorf("%d messages wait and %d are dead letters, want 0 and 1", n, moved)
	}
}
