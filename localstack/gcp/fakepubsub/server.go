package fakepubsub

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// Options configure a server. The zero value is a server without faults.
type Options struct {
	Faults Faults
	// Manual stops the clock: it goes on only when Advance is called.
	Manual bool
	// PullWait is how long a pull waits for a message; 0 means a second.
	PullWait time.Duration
	// Absent returns the subscription that a request for an unknown topic or
	// subscription of that name creates, with its topic. It is nil if such a request
	// is NotFound, as in Pub/Sub.
	Absent func(project, name string) *pb.Subscription
	// Token returns the identity token of a push for an account and an audience, or "" if
	// Pub/Sub may not make one: then the push has none. nil takes the function Token.
	Token func(account, audience string) string
	// MayForward reports whether Pub/Sub may move a message from a subscription to its
	// topic of dead letters, both by their resource names. If not, the message stays, and
	// is delivered again. nil always allows it.
	MayForward func(subscription, topic string) bool
	// Published is told of each message before it is put into a topic, by the topic's resource
	// name. Its error is the answer to the request, which then has no effect; nil takes all.
	Published func(topic string, m *pb.PubsubMessage) error
	// Stats is told of every request and answer, to count them; optional.
	Stats stats.Handler
}

// Faults are shares of requests or messages, in percent.
type Faults struct {
	Seed        uint64
	LostReplies int // requests, except pulls, that are performed, and then answered with Unavailable
	Duplicates  int // messages that are delivered twice
	StaleAcks   int // expired acknowledgements that have an effect
}

// Server is a running server. It is safe for concurrent use.
type Server struct {
	// Address is the value of PUBSUB_EMULATOR_HOST for the server.
	Address string

	pb.UnimplementedPublisherServer
	pb.UnimplementedSubscriberServer
	options Options
	pushes  *http.Client
	ended   context.Context // ends with the test

	mu            sync.Mutex
	rng           *rand.Rand
	now           time.Time // of a manual clock
	changed       chan struct{}
	topics        map[string][]*subscription // by the topic's resource name
	subscriptions map[string]*subscription
	serial        int // of the last message or delivery
	pushing       sync.WaitGroup
}

// Start starts a server on a port of this machine, until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.PullWait == 0 {
		o.PullWait = time.Second
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	s := &Server{
		Address:       listener.Addr().String(),
		options:       o,
		pushes:        &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pushers}},
		ended:         ended,
		rng:           rand.New(rand.NewPCG(o.Faults.Seed, 17)),
		now:           time.Now(),
		changed:       make(chan struct{}),
		topics:        map[string][]*subscription{},
		subscriptions: map[string]*subscription{},
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxPublishBytes + 1<<20)}
	if o.Stats != nil {
		options = append(options, grpc.StatsHandler(o.Stats))
	}
	server := grpc.NewServer(options...)
	pb.RegisterPublisherServer(server, s)
	pb.RegisterSubscriberServer(server, s)
	s.pushing.Go(func() { _ = server.Serve(listener) }) // it ends with the test
	t.Cleanup(func() {
		end()
		server.Stop()
		s.pushing.Wait()
		s.pushes.CloseIdleConnections()
	})
	return s
}

// ClientOptions returns the options of a client that sends its requests to the
// server, for tests that cannot set the environment because they run in parallel.
func (s *Server) ClientOptions() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + s.Address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// Now returns the time of the server's clock.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock()
}

// Advance moves a manual clock forward.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
	s.wake()
}

// Waiting returns how many messages of a subscription are not acknowledged.
func (s *Server) Waiting(subscription string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subscriptions[subscription]; sub != nil {
		return len(sub.messages)
	}
	return 0
}

// Hurry ends the backoff of all messages, so that a test does not wait for it.
func (s *Server) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for _, sub := range s.subscriptions {
		for _, m := range sub.messages {
			if m.lease == "" && m.until.After(now) {
				m.until = now
			}
		}
	}
	s.wake()
}

// clock returns the time. The caller holds mu.
func (s *Server) clock() time.Time {
	if s.options.Manual {
		return s.now
	}
	return time.Now()
}

// wake lets everyone who waits for a change look again. The caller holds mu.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// draw returns true in that percentage of calls. The caller holds mu.
func (s *Server) draw(percent int) bool { return percent > 0 && s.rng.IntN(100) < percent }
