// Package fakesecrets is Secret Manager in this process, as far as rollout uses it: the
// latest version of a secret, over gRPC.
//
// The SDK knows no variable for an emulator of Secret Manager. Tests in this process give
// ClientOptions to the driver. Programs reach the emulator through package gateway.
package fakesecrets

import (
	"context"
	"hash/crc32"
	"net"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/secretmanager/apiv1/secretmanagerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Server is the emulator. It is safe for concurrent use.
type Server struct {
	secretmanagerpb.UnimplementedSecretManagerServiceServer
	address string

	mu      sync.Mutex
	secrets map[string]*held // by resource name without the version
	failing []codes.Code     // of the next requests
	asked   []string         // the authorization header of each request
	now     func() time.Time // the time in the answers' headers
}

// held is a secret.
type held struct {
	content  []byte
	disabled bool // its latest version
	damaged  bool // its checksum is wrong
	denied   bool // the caller may not read it
}

// Start serves an emulator on a port of the loopback interface until end is called. The
// options are the server's, such as TLS credentials.
func Start(options ...grpc.ServerOption) (s *Server, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	s = &Server{address: listener.Addr().String(), secrets: map[string]*held{}, now: time.Now}
	server := grpc.NewServer(options...)
	secretmanagerpb.RegisterSecretManagerServiceServer(server, s)
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	return s, server.Stop, nil
}

// Address returns the address at which the emulator listens.
func (s *Server) Address() string { return s.address }

// ClientOptions are the options of clients in this process.
func (s *Server) ClientOptions() []option.ClientOption {
	return []option.ClientOption{option.WithEndpoint(s.address),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))}
}

// Set makes a secret of the project, or a new version of it.
func (s *Server) Set(project, name string, content []byte) {
	s.change(project, name, func(h *held) { *h = held{content: content} })
}

// Disable disables the latest version of a secret.
func (s *Server) Disable(project, name string) {
	s.change(project, name, func(h *held) { h.disabled = true })
}

// Damage makes the emulator send a wrong checksum of a secret.
func (s *Server) Damage(project, name string) {
	s.change(project, name, func(h *held) { h.damaged = true })
}

// Deny makes the emulator deny reads of a secret.
func (s *Server) Deny(project, name string) {
	s.change(project, name, func(h *held) { h.denied = true })
}

func (s *Server) change(project, name string, f func(*held)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := "projects/" + project + "/secrets/" + name
	if s.secrets[full] == nil {
		s.secrets[full] = &held{}
	}
	f(s.secrets[full])
}

// Fail makes the next requests fail with the codes, one each.
func (s *Server) Fail(failures ...codes.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = append(s.failing, failures...)
}

// SetClock sets the time in the answers' headers.
func (s *Server) SetClock(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// Authorizations returns the authorization header of each request so far.
func (s *Server) Authorizations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// AccessSecretVersion returns a secret; see
// secretmanagerpb.SecretManagerServiceServer.
func (s *Server) AccessSecretVersion(ctx context.Context, in *secretmanagerpb.AccessSecretVersionRequest) (
	*secretmanagerpb.AccessSecretVersionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	header, _ := metadata.FromIncomingContext(ctx)
	authorization := ""
	if values := header.Get("authorization"); len(values) > 0 {
		authorization = values[0]
	}
	s.asked = append(s.asked, authorization)
	// Google's front ends put the date into each answer.
	if err := grpc.SetHeader(ctx, metadata.Pairs("date", s.now().UTC().Format(http.TimeFormat))); err != nil {
		return nil, err
	}
	if len(s.failing) > 0 {
		code := s.failing[0]
		s.failing = s.failing[1:]
		return nil, status.Error(code, "a fault")
	}
	const latest = "/versions/latest"
	name := in.GetName()
	if len(name) < len(latest) || name[len(name)-len(latest):] != latest {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not the name of a latest version", name)
	}
	h := s.secrets[name[:len(name)-len(latest)]]
	switch {
	case h == nil:
		return nil, status.Errorf(codes.NotFound, "Secret [%s] not found or has no versions.", name)
	case h.denied:
		return nil, status.Errorf(codes.PermissionDenied, "Permission 'secretmanager.versions.access' denied for %q", name)
	case h.disabled:
		return nil, status.Errorf(codes.FailedPrecondition, "Secret Version [%s] is in DISABLED state.", name)
	}
	sum := int64(crc32.Checksum(h.content, crc32.MakeTable(crc32.Castagnoli)))
	if h.damaged {
		sum++
	}
	return &secretmanagerpb.AccessSecretVersionResponse{Name: name,
		Payload: &secretmanagerpb.SecretPayload{Data: h.content, DataCrc32C: &sum}}, nil
}
