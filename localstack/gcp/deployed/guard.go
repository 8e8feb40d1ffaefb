package deployed

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	firestorepb "cloud.google.com/go/firestore/apiv1/firestorepb"
	pubsubpb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/secretmanager/apiv1/secretmanagerpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"rollout/localstack/gcp/gateway"
	"rollout/localstack/gcp/iam"
)

// startGateway starts the doors by which programs reach the emulators: Google's hosts, over
// TLS, with a guard in front of each emulator.
func (in *Installation) startGateway(t testing.TB) {
	t.Helper()
	way, end, err := gateway.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	t.Cleanup(func() {
		if hosts := way.Refused(); len(hosts) > 0 {
			t.Errorf("programs called %v, of which there is no emulator", hosts)
		}
	})
	in.way = way
	in.door(t, "firestore.googleapis.com", func(s *grpc.Server) { firestorepb.RegisterFirestoreServer(s, in.Firestore) })
	in.door(t, "pubsub.googleapis.com", func(s *grpc.Server) {
		pubsubpb.RegisterPublisherServer(s, in.PubSub)
		pubsubpb.RegisterSubscriberServer(s, in.PubSub)
	})
	in.door(t, "secretmanager.googleapis.com",
		func(s *grpc.Server) { secretmanagerpb.RegisterSecretManagerServiceServer(s, in.Secrets) })

	in.serve(t, "storage.googleapis.com", http.HandlerFunc(in.guardStorage))
}

// lead returns a listener to which the gateway leads a host.
func (in *Installation) lead(t testing.TB, host string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in.way.Lead(host, listener.Addr().String())
	return listener
}

// maxMessage is the largest message of the emulators over gRPC, in bytes.
const maxMessage = 12 << 20

// door serves a host's emulators over gRPC, behind the guard.
func (in *Installation) door(t testing.TB, host string, register func(*grpc.Server)) {
	t.Helper()
	certificate, err := in.way.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(certificate)), grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnaryInterceptor(func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := in.guard(ctx, m); err != nil {
				return nil, err
			}
			return next(ctx, m)
		}),
		grpc.StreamInterceptor(func(s any, to grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(s, guardedStream{to, in})
		}))
	register(server)
	listener := in.lead(t, host)
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	t.Cleanup(server.Stop)
}

// guardedStream checks each message of a client.
type guardedStream struct {
	grpc.ServerStream
	in *Installation
}

// RecvMsg receives a message, and refuses one that the caller may not send; see
// grpc.ServerStream.
func (s guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.in.guard(s.Context(), m)
}

// guard returns the error of a request over gRPC that the caller may not make.
func (in *Installation) guard(ctx context.Context, m any) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	authorization := ""
	if values := headers.Get("authorization"); len(values) == 1 {
		authorization = values[0]
	}
	member, err := in.caller(authorization)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	needed, err := neededPermissions(m)
	if err != nil {
		return err
	}
	for _, at := range needed {
		at.Member = member
		if err := in.Policy.Check(at); err != nil {
			return permissionDenied(at)
		}
	}
	return nil
}

// caller returns the member that a header's access token belongs to.
func (in *Installation) caller(authorization string) (string, error) {
	token, _ := strings.CutPrefix(authorization, "Bearer ")
	account, err := in.signer.AccountOf(token)
	return memberOf(account), err
}

// permissionDenied is Google's refusal. Firestore and Pub/Sub name the permission only in
// the details.
func permissionDenied(r iam.Request) error {
	s := status.New(codes.PermissionDenied, "Permission '"+r.Permission+"' denied on resource '"+r.Resource+
		"' (or it may not exist).")
	detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: "IAM_PERMISSION_DENIED", Domain: "iam.googleapis.com",
		Metadata: map[string]string{"permission": r.Permission, "resource": r.Resource}})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// neededPermissions returns the permissions that a request over gRPC needs. Sources: the
// pages "Access control" of each service, docs.cloud.google.com/pubsub/docs/access-control
// and so on. A request that is not known here is refused, so that a test notices it.
func neededPermissions(m any) ([]iam.Request, error) {
	one := func(permission, resource string) ([]iam.Request, error) {
		return []iam.Request{{Permission: permission, Resource: resource}}, nil
	}
	switch m := m.(type) {
	case *firestorepb.CommitRequest:
		var needed []iam.Request
		for _, w := range m.Writes {
			for _, verb := range verbsOf(w) {
				needed = append(needed, iam.Request{Permission: "datastore.entities." + verb, Resource: m.Database})
			}
		}
		return needed, nil
	case *firestorepb.BatchGetDocumentsRequest:
		return one("datastore.entities.get", m.Database)
	case *firestorepb.RunQueryRequest:
		database := strings.TrimSuffix(m.Parent, "/documents")
		return []iam.Request{{Permission: "datastore.entities.list", Resource: database},
			{Permission: "datastore.entities.get", Resource: database}}, nil
	case *pubsubpb.PublishRequest:
		return one(publishPermission, m.Topic)
	case *pubsubpb.PullRequest:
		return one(consumePermission, m.Subscription)
	case *pubsubpb.AcknowledgeRequest:
		return one(consumePermission, m.Subscription)
	case *pubsubpb.ModifyAckDeadlineRequest:
		return one(consumePermission, m.Subscription)
	case *secretmanagerpb.AccessSecretVersionRequest:
		secret, _, _ := strings.Cut(m.Name, "/versions/")
		return one("secretmanager.versions.access", secret)
	}
	return nil, status.Errorf(codes.Unimplemented, "the permissions of a %T are not known", m)
}

// verbsOf returns what a write does, by its precondition.
func verbsOf(w *firestorepb.Write) []string {
	exists, decided := w.CurrentDocument.GetConditionType().(*firestorepb.Precondition_Exists)
	switch {
	case w.GetUpdate() == nil:
		return []string{"delete"}
	case decided && !exists.Exists:
		return []string{"create"}
	case w.CurrentDocument == nil:
		return []string{"create", "update"}
	}
	return []string{"update"}
}
