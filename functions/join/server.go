package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"rollout/shared/blob"
	"rollout/shared/ca"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/remote"
	"rollout/shared/remote/portsv1"
	"rollout/shared/secret"
)

// Options are what a server serves.
type Options struct {
	Ports      host.Ports
	Secrets    secret.Store
	Deployment config.Deployment
	Config     []byte   // of the deployment, TOML, as workers read it again
	Settings   []string // written over it
	Authority  *ca.Authority
}

// Server serves an installation's ports to its members. Use New.
type Server struct {
	Options
	members *Members
	grpc    *grpc.Server
	portsOf func(context.Context) ports // of the caller

	enrolling chan struct{} // callers that enroll now

	mu       sync.Mutex
	reported map[string]time.Time // when callers that are refused were logged last, by address
}

// Bounds of connections.
const (
	maxCalls         = 256 // at once, of a connection
	handshakeTimeout = 10 * time.Second
	// connectionAge is how long a connection lives: then its worker connects again, and shows its
	// newest certificate. Calls in progress have connectionGrace to end.
	connectionAge   = time.Hour
	connectionGrace = 10 * time.Minute
	shutdownTimeout = 3 * time.Second
)

// New returns a server. Serve starts it.
func New(o Options) *Server {
	s := &Server{Options: o, members: NewMembers(o.Ports, o.Authority), reported: map[string]time.Time{},
		enrolling: make(chan struct{}, maxEnrolling)}
	s.portsOf = func(ctx context.Context) ports { return s.allowed(callerOf(ctx).rights) }
	settings := o.Authority.ServerConfig(o.Ports.Clock)
	settings.ClientAuth = tls.RequestClientCert // identify checks it, and tells the caller what is wrong with it
	s.grpc = grpc.NewServer(
		grpc.Creds(callerCredentials{credentials.NewTLS(settings), s.verify}),
		grpc.InTapHandle(s.tap),
		grpc.StatsHandler(connections{}),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxRecvMsgSize(remote.MaxRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: connectionAge,
			MaxConnectionAgeGrace: connectionGrace, Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
	)
	portsv1.RegisterMembershipServer(s.grpc, membershipService{server: s})
	portsv1.RegisterDocumentsServer(s.grpc, documentsService{server: s})
	portsv1.RegisterObjectsServer(s.grpc, objectsService{server: s})
	portsv1.RegisterQueuesServer(s.grpc, queuesService{server: s})
	portsv1.RegisterSecretsServer(s.grpc, secretsService{server: s})
	return s
}

// Serve answers at the listener until ctx ends, and closes it. Calls in progress then have a
// moment to end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.Ports.Log.InfoContext(ctx, "workers may join", "address", l.Addr().String())
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		late := time.AfterFunc(shutdownTimeout, s.grpc.Stop)
		defer late.Stop()
		s.grpc.GracefulStop()
	})
	err := s.grpc.Serve(limited(l))
	if !stop() {
		<-stopped
	}
	if ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fault.WithKind(fault.Unavailable, err, "serve the workers that join")
}

// ports are what a caller may use of the installation's.
type ports struct {
	documents document.Store
	objects   blob.Store
	queues    queue.Queues
	secrets   secret.Store
}

// allowed returns the ports of a caller with those rights.
func (s *Server) allowed(r rights) ports {
	return ports{documents{s.Ports.Docs, r}, objects{s.Ports.Blobs, r}, queues{s.Ports.Queues, r}, secrets{s.Secrets, r}}
}

// callerKey is the context key of the member that makes a call.
type callerKey struct{}

// caller is the member that makes a call, and what it may do.
type caller struct {
	Member
	rights rights
}

// callerOf returns who makes the call of the context: identify has put it there.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller) // the zero caller has no rights
	return c
}

func (s *Server) unary(ctx context.Context, in any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := s.identify(ctx, call.FullMethod)
	if err != nil {
		return nil, err
	}
	out, err := next(ctx, in)
	return out, remote.StatusOf(err)
}

// statusOf is remote.StatusOf, which keeps what identify returned.
func statusOf(err error) error {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) && s.GRPCStatus().Code() == codes.Unauthenticated {
		return s.GRPCStatus().Err()
	}
	return remote.StatusOf(err)
}

func (s *Server) stream(service any, in grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := s.identify(in.Context(), call.FullMethod)
	if err != nil {
		return err
	}
	again := func() error {
		_, err := s.identify(in.Context(), call.FullMethod)
		return err
	}
	return statusOf(next(service, identified{in, ctx, again}))
}

// identified is a stream whose caller is known.
type identified struct {
	grpc.ServerStream
	ctx   context.Context
	again func() error // checks the caller again
}

func (s identified) Context() context.Context { return s.ctx }

// RecvMsg is grpc.ServerStream's. A stream may last: one of a caller that is refused meanwhile
// brings no more messages, and does not end well.
func (s identified) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil || errors.Is(err, io.EOF) {
		if refused := s.again(); refused != nil {
			return refused
		}
	}
	return err
}

// identify finds out which member makes a call, from the certificate of its connection, and puts
// it into the context. Whoever enrolls has none yet.
func (s *Server) identify(ctx context.Context, method string) (context.Context, error) {
	if method == portsv1.Membership_Enroll_FullMethodName {
		return ctx, nil
	}
	m, err := s.memberOf(ctx)
	if fault.Is(err, fault.Denied) {
		s.report(ctx, err)
		return nil, remote.Unidentified(err)
	}
	if err != nil {
		return nil, remote.StatusOf(err)
	}
	return context.WithValue(ctx, callerKey{}, caller{m, rightsOf(s.Deployment, m.Pool)}), nil
}

func (s *Server) memberOf(ctx context.Context) (Member, error) {
	var info credentials.AuthInfo
	if p, ok := peer.FromContext(ctx); ok {
		info = p.AuthInfo
	}
	cert := certificateOf(info)
	if err := s.verify(cert); err != nil {
		return Member{}, err
	}
	return s.members.Check(ctx, cert.Subject.CommonName)
}

// verify returns nil if a certificate is a worker's and holds now. It may be nil.
func (s *Server) verify(cert *x509.Certificate) error {
	if cert == nil {
		return &fault.Error{Kind: fault.Denied, Err: errors.New("the caller shows no certificate"),
			Remedy: "start `gpuworker --join` with a token of `rollout join-token`"}
	}
	_, err := s.Authority.VerifyClient(cert, s.Ports.Clock.Now())
	return err
}

// How often a caller that is refused is logged, and how many are in that time.
const (
	reportAgain = time.Minute
	maxReported = 100
)

// report logs that a caller is refused, unless its address was logged a moment ago, or very many
// others were: strangers must not fill a disk with lines.
func (s *Server) report(ctx context.Context, refused error) {
	from := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
		if h, _, err := net.SplitHostPort(from); err == nil {
			from = h
		}
	}
	now := s.Ports.Clock.Now()
	if s.mayReport(from, now) {
		s.Ports.Log.WarnContext(ctx, "a worker is refused", slog.String("from", from),
			slog.Any(observe.KeyError, refused))
	}
}

// mayReport reports whether a caller's address may be logged now, and notes that it was.
func (s *Server) mayReport(from string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.reported, func(_ string, at time.Time) bool { return now.Sub(at) >= reportAgain })
	if _, lately := s.reported[from]; lately || len(s.reported) >= maxReported {
		return false
	}
	s.reported[from] = now
	return true
}
