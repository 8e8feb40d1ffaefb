package join

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/queue"
	"rollout/shared/remote"
	"rollout/shared/remote/portsv1"
)

// The services translate calls to the ports. Rights are below them, and errors become statuses
// above them.

type membershipService struct {
	portsv1.UnimplementedMembershipServer
	server *Server
}

func (s membershipService) Enroll(ctx context.Context, in *portsv1.EnrollRequest) (*portsv1.Certificate, error) {
	der, err := s.server.members.Enroll(ctx, in.GetToken(), in.GetSigningRequest(), in.GetHost())
	if fault.Is(err, fault.Denied) {
		s.server.report(ctx, err)
	}
	return s.certificate(der, err)
}

func (s membershipService) Renew(ctx context.Context, in *portsv1.RenewRequest) (*portsv1.Certificate, error) {
	der, err := s.server.members.Renew(ctx, callerOf(ctx).ID, in.GetSigningRequest())
	return s.certificate(der, err)
}

func (s membershipService) certificate(der []byte, err error) (*portsv1.Certificate, error) {
	if err != nil {
		return nil, err
	}
	return &portsv1.Certificate{Certificate: der, Authority: s.server.Authority.Certificate()}, nil
}

func (s membershipService) Describe(ctx context.Context, _ *portsv1.DescribeRequest) (*portsv1.Description, error) {
	out := &portsv1.Description{Config: s.server.Config, Settings: s.server.Settings, Pool: callerOf(ctx).Pool}
	for _, p := range s.server.Deployment.InferPools() {
		out.Pools = append(out.Pools, &portsv1.Pool{Name: p.Name, Model: p.Model})
	}
	return out, nil
}

type documentsService struct {
	portsv1.UnimplementedDocumentsServer
	server *Server
}

func (s documentsService) store(ctx context.Context) document.Store {
	return s.server.portsOf(ctx).documents
}

// maxDocuments bounds how many documents one call reads.
const maxDocuments = 200

// pageBytes bounds the values of one answer, unless one value alone is larger.
const pageBytes = 1 << 20

func (s documentsService) Get(ctx context.Context, in *portsv1.DocumentKey) (*portsv1.Document, error) {
	d, err := s.store(ctx).Get(ctx, in.GetKey())
	return documentOf(d), err
}

func (s documentsService) GetMany(ctx context.Context, in *portsv1.DocumentKeys) (*portsv1.DocumentPage, error) {
	keys := in.GetKeys()
	docs, err := s.store(ctx).GetMany(ctx, keys[:min(len(keys), maxDocuments)])
	return pageOf(docs), err
}

func (s documentsService) Create(ctx context.Context, in *portsv1.DocumentWrite) (*portsv1.Revision, error) {
	rev, err := s.store(ctx).Create(ctx, in.GetKey(), in.GetValue())
	return &portsv1.Revision{Revision: string(rev)}, err
}

func (s documentsService) Replace(ctx context.Context, in *portsv1.DocumentWrite) (*portsv1.Revision, error) {
	rev, err := s.store(ctx).Replace(ctx, in.GetKey(), in.GetValue(), document.Revision(in.GetRevision()))
	return &portsv1.Revision{Revision: string(rev)}, err
}

func (s documentsService) Delete(ctx context.Context, in *portsv1.DocumentRevision) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.store(ctx).Delete(ctx, in.GetKey(), document.Revision(in.GetRevision()))
}

func (s documentsService) List(ctx context.Context, in *portsv1.DocumentList) (*portsv1.DocumentPage, error) {
	docs, err := s.store(ctx).List(ctx, in.GetPrefix(), in.GetAfter(), min(int(in.GetLimit()), maxDocuments))
	return pageOf(docs), err
}

func (s documentsService) Ping(ctx context.Context, _ *portsv1.PingRequest) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.store(ctx).Ping(ctx)
}

func documentOf(d document.Doc) *portsv1.Document {
	return &portsv1.Document{Key: d.Key, Value: d.Value, Revision: string(d.Revision)}
}

// pageOf returns the first documents that fit into an answer, at least one.
func pageOf(docs []document.Doc) *portsv1.DocumentPage {
	page, size := &portsv1.DocumentPage{}, 0
	for _, d := range docs {
		if size += len(d.Value); size > pageBytes && len(page.Documents) > 0 {
			break
		}
		page.Documents = append(page.Documents, documentOf(d))
	}
	return page
}

type objectsService struct {
	portsv1.UnimplementedObjectsServer
	server *Server
}

func (s objectsService) store(ctx context.Context) blob.Store { return s.server.portsOf(ctx).objects }

func (s objectsService) Put(stream grpc.ClientStreamingServer[portsv1.PutPart, portsv1.Object]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	if head == nil {
		return fault.New(fault.Invalid, "a put begins without its key")
	}
	r := &partReader{stream: stream}
	info, err := s.store(stream.Context()).Put(stream.Context(), head.GetKey(), r,
		blob.PutOptions{CreateOnly: head.GetCreateOnly(), IfVersion: head.GetIfVersion()})
	if err != nil {
		return err
	}
	return stream.SendAndClose(objectOf(info))
}

// partReader reads the bytes of a put. Its error is io.EOF only where the sender has closed the
// stream: one that breaks off leaves no object.
type partReader struct {
	stream grpc.ClientStreamingServer[portsv1.PutPart, portsv1.Object]
	rest   []byte
	err    error
}

func (r *partReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		part, err := r.stream.Recv()
		if err == nil && part.GetHead() != nil {
			err = fault.New(fault.Invalid, "a put has two keys")
		}
		if err != nil && !errors.Is(err, io.EOF) {
			err = fault.Wrap(err, "receive the object")
		}
		r.rest, r.err = part.GetBytes(), err
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (s objectsService) Get(in *portsv1.ObjectRange, stream grpc.ServerStreamingServer[portsv1.GetPart]) error {
	body, info, err := s.store(stream.Context()).Get(stream.Context(), in.GetKey(),
		blob.GetOptions{Version: in.GetVersion(), Offset: in.GetOffset(), Length: in.GetLength()})
	if err != nil {
		return err
	}
	defer body.Close() // read only: nothing can be lost
	if err := stream.Send(&portsv1.GetPart{Part: &portsv1.GetPart_Object{Object: objectOf(info)}}); err != nil {
		return err
	}
	for {
		chunk := bytes.NewBuffer(make([]byte, 0, remote.ChunkSize)) // the transport may keep it
		n, err := io.CopyN(chunk, body, remote.ChunkSize)
		if n > 0 {
			if err := stream.Send(&portsv1.GetPart{Part: &portsv1.GetPart_Bytes{Bytes: chunk.Bytes()}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s objectsService) Stat(ctx context.Context, in *portsv1.ObjectVersion) (*portsv1.Object, error) {
	info, err := s.store(ctx).Stat(ctx, in.GetKey(), in.GetVersion())
	return objectOf(info), err
}

func (s objectsService) List(ctx context.Context, in *portsv1.ObjectList) (*portsv1.ObjectPage, error) {
	infos, err := s.store(ctx).List(ctx, in.GetPrefix(), in.GetAfter(), int(in.GetLimit()))
	page := &portsv1.ObjectPage{}
	for _, i := range infos {
		page.Objects = append(page.Objects, objectOf(i))
	}
	return page, err
}

func (s objectsService) Join(ctx context.Context, in *portsv1.JoinRequest) (*portsv1.Object, error) {
	var parts []blob.Range
	for _, p := range in.GetParts() {
		parts = append(parts, blob.Range{Key: p.GetKey(), Offset: p.GetOffset(), Length: p.GetLength()})
	}
	info, err := s.store(ctx).Join(ctx, in.GetDestination(), parts)
	return objectOf(info), err
}

func (s objectsService) Copy(ctx context.Context, in *portsv1.CopyRequest) (*portsv1.Object, error) {
	info, err := s.store(ctx).Copy(ctx, in.GetDestination(), in.GetSource())
	return objectOf(info), err
}

func (s objectsService) Delete(ctx context.Context, in *portsv1.ObjectVersion) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.store(ctx).Delete(ctx, in.GetKey(), in.GetVersion())
}

func objectOf(i blob.Info) *portsv1.Object {
	return &portsv1.Object{Key: i.Key, Size: i.Size, Version: i.Version, Modified: i.ModTime.UnixNano()}
}

type queuesService struct {
	portsv1.UnimplementedQueuesServer
	server *Server
}

func (s queuesService) queues(ctx context.Context) queue.Queues { return s.server.portsOf(ctx).queues }

func (s queuesService) Send(ctx context.Context, in *portsv1.SendRequest) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.queues(ctx).Send(ctx, in.GetQueue(), in.GetBodies(), time.Duration(in.GetDelay()))
}

// maxWait bounds how long one call waits for a message.
const maxWait = time.Minute

func (s queuesService) Receive(ctx context.Context, in *portsv1.ReceiveRequest) (*portsv1.Messages, error) {
	got, err := s.queues(ctx).Receive(ctx, in.GetQueue(), min(int(in.GetMax()), remote.ReceiveMax),
		time.Duration(in.GetVisibility()), min(time.Duration(in.GetWait()), maxWait))
	out := &portsv1.Messages{}
	for _, m := range got {
		out.Messages = append(out.Messages, &portsv1.Message{Id: m.ID, Body: m.Body, Receives: int32(m.Receives),
			Receipt: m.Receipt})
	}
	return out, err
}

func (s queuesService) Extend(ctx context.Context, in *portsv1.ReceiptRequest) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.queues(ctx).Extend(ctx, in.GetQueue(), in.GetReceipt(), time.Duration(in.GetSpan()))
}

func (s queuesService) Ack(ctx context.Context, in *portsv1.AckRequest) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.queues(ctx).Ack(ctx, in.GetQueue(), in.GetReceipts())
}

func (s queuesService) Nack(ctx context.Context, in *portsv1.ReceiptRequest) (*portsv1.Done, error) {
	return &portsv1.Done{}, s.queues(ctx).Nack(ctx, in.GetQueue(), in.GetReceipt(), time.Duration(in.GetSpan()))
}

type secretsService struct {
	portsv1.UnimplementedSecretsServer
	server *Server
}

func (s secretsService) Get(ctx context.Context, in *portsv1.SecretName) (*portsv1.SecretValue, error) {
	v, err := s.server.portsOf(ctx).secrets.Get(ctx, in.GetName())
	if err != nil {
		return nil, err
	}
	return &portsv1.SecretValue{Text: v.Reveal()}, nil
}
