package fakefirestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Options configure a server. The zero value is a server without faults.
type Options struct {
	Faults Faults
	// Now is the server's clock; nil is the machine's.
	Now func() time.Time
	// Stats is told of every request and answer, to count them; optional.
	Stats stats.Handler
}

// Faults are the shares of commits that fail, in percent.
type Faults struct {
	Seed        uint64
	Aborted     int // refused because of contention
	LostReplies int // performed, and then answered with Unavailable
}

// Server is a running server. It is safe for concurrent use.
type Server struct {
	// Address is the value of FIRESTORE_EMULATOR_HOST for the server.
	Address string

	pb.UnimplementedFirestoreServer
	options Options

	mu        sync.Mutex
	rng       *rand.Rand
	documents map[string]*pb.Document // by resource name
	last      time.Time               // the latest update time
	writes    map[string][]time.Time  // of each document, in order
}

// Start starts a server on a port of this machine, until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Now == nil {
		o.Now = time.Now
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Address:   listener.Addr().String(),
		options:   o,
		rng:       rand.New(rand.NewPCG(o.Faults.Seed, 16)),
		documents: map[string]*pb.Document{},
		writes:    map[string][]time.Time{},
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxRequest)}
	if o.Stats != nil {
		options = append(options, grpc.StatsHandler(o.Stats))
	}
	server := grpc.NewServer(options...)
	pb.RegisterFirestoreServer(server, s)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(listener) // it ends with the test
	}()
	t.Cleanup(func() {
		server.Stop()
		<-stopped
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

// maxRequest is Firestore's limit of a request, in bytes.
const maxRequest = 10 << 20

// Busiest returns the document that was written most often within any window of
// that length, and how often.
func (s *Server) Busiest(window time.Duration) (name string, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for document, times := range s.writes {
		first := 0
		for i, at := range times {
			for at.Sub(times[first]) >= window {
				first++
			}
			if n := i - first + 1; n > writes {
				name, writes = document, n
			}
		}
	}
	return name, writes
}

// Commit applies one write; see the package's comment.
func (s *Server) Commit(ctx context.Context, in *pb.CommitRequest) (*pb.CommitResponse, error) {
	if err := s.check(ctx, in.Database); err != nil {
		return nil, err
	}
	if len(in.Transaction) > 0 || len(in.Writes) != 1 {
		return nil, status.Error(codes.Unimplemented, "a commit must have one write and no transaction")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draw(s.options.Faults.Aborted) {
		return nil, status.Error(codes.Aborted, "Too much contention on these documents. Please try again.")
	}
	updated, err := s.apply(in.Database, in.Writes[0])
	if err != nil {
		return nil, err
	}
	if s.draw(s.options.Faults.LostReplies) {
		return nil, status.Error(codes.Unavailable, "the reply was lost")
	}
	result := &pb.WriteResult{UpdateTime: updated}
	return &pb.CommitResponse{WriteResults: []*pb.WriteResult{result}, CommitTime: timestamppb.New(s.last)}, nil
}

// BatchGetDocuments returns documents by name; see the package's comment.
func (s *Server) BatchGetDocuments(
	in *pb.BatchGetDocumentsRequest, stream pb.Firestore_BatchGetDocumentsServer,
) error {
	if err := s.check(stream.Context(), in.Database); err != nil {
		return err
	}
	if in.ConsistencySelector != nil || in.Mask != nil {
		return status.Error(codes.Unimplemented, "a read must not have a mask, a time or a transaction")
	}
	for _, name := range in.Documents {
		if err := checkName(in.Database, name); err != nil {
			return err
		}
	}
	answers := s.read(in.Documents)
	for _, answer := range answers {
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

// read returns the answers about documents. It answers a repeated name once, and in
// no particular order.
func (s *Server) read(documents []string) []*pb.BatchGetDocumentsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, name := range documents {
		names[name] = true
	}
	var answers []*pb.BatchGetDocumentsResponse
	for name := range names {
		answer := &pb.BatchGetDocumentsResponse{ReadTime: timestamppb.New(s.options.Now())}
		if doc := s.documents[name]; doc != nil {
			answer.Result = &pb.BatchGetDocumentsResponse_Found{Found: doc}
		} else {
			answer.Result = &pb.BatchGetDocumentsResponse_Missing{Missing: name}
		}
		answers = append(answers, answer)
	}
	return answers
}

// check refuses a request without the header by which Firestore finds the database.
func (s *Server) check(ctx context.Context, database string) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	if got := headers.Get("google-cloud-resource-prefix"); len(got) != 1 || got[0] != database {
		return status.Errorf(codes.InvalidArgument, "the header google-cloud-resource-prefix is %q, want %q", got, database)
	}
	if parts := strings.Split(database, "/"); len(parts) != 4 || parts[0] != "projects" || parts[2] != "databases" {
		return status.Errorf(codes.InvalidArgument, "%q is not the name of a database", database)
	}
	return nil
}

// draw returns true in that percentage of calls. The caller holds mu.
func (s *Server) draw(percent int) bool { return percent > 0 && s.rng.IntN(100) < percent }

// checkName refuses names that Firestore refuses, and those of other databases.
func checkName(database, name string) error {
	path, ok := strings.CutPrefix(name, database+"/documents/")
	parts := strings.Split(path, "/")
	if !ok || len(parts) != 2 {
		return status.Errorf(codes.InvalidArgument, "%q is not the name of a document of a collection of %s", name, database)
	}
	for _, id := range parts {
		if err := checkID(id); err != nil {
			return err
		}
	}
	return nil
}

// maxID is Firestore's limit of the bytes of an id.
const maxID = 1500

func checkID(id string) error {
	reserved := len(id) >= 4 && strings.HasPrefix(id, "__") && strings.HasSuffix(id, "__")
	if id == "" || id == "." || id == ".." || len(id) > maxID || reserved {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("resource id %.60q is not allowed", id))
	}
	return nil
}
