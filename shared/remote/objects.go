package remote

import (
	"context"
	"errors"
	"io"
	"time"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/remote/portsv1"
)

// Objects implements blob.Store. Use Client.Objects to get one.
type Objects struct {
	client *Client
	rpc    portsv1.ObjectsClient
}

var _ blob.Store = (*Objects)(nil)

// ChunkSize is how many bytes of an object one message carries.
const ChunkSize = 256 << 10

// Put is blob.Store's.
func (s *Objects) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckPut(key, o); err != nil {
		return blob.Info{}, err
	}
	calling, cancel := context.WithCancel(ctx)
	defer cancel() // of a call that is not over: the server then keeps nothing
	stream, err := s.rpc.Put(calling)
	if err != nil {
		return blob.Info{}, s.failed(ctx, err, "put object %s", key)
	}
	head := &portsv1.PutHead{Key: key, CreateOnly: o.CreateOnly, IfVersion: valid(o.IfVersion)}
	err = stream.Send(&portsv1.PutPart{Part: &portsv1.PutPart_Head{Head: head}})
	chunk := make([]byte, ChunkSize)
	for err == nil {
		n, readErr := fill(chunk, r)
		if readErr != nil && readErr != io.EOF {
			return blob.Info{}, readErr
		}
		if n > 0 {
			err = stream.Send(&portsv1.PutPart{Part: &portsv1.PutPart_Bytes{Bytes: chunk[:n]}})
		}
		if readErr == io.EOF {
			break
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the server has answered, see below
		return blob.Info{}, s.failed(ctx, err, "put object %s", key)
	}
	object, err := stream.CloseAndRecv()
	if err != nil {
		return blob.Info{}, s.failed(ctx, err, "put object %s", key)
	}
	return infoOf(object), nil
}

// fill reads until the chunk is full or r ends. Unlike io.ReadFull, it returns an error of r as it
// is, and io.EOF at r's end alone.
func fill(chunk []byte, r io.Reader) (n int, err error) {
	for n < len(chunk) && err == nil {
		var more int
		more, err = r.Read(chunk[n:])
		n += more
	}
	return n, err
}

// Get is blob.Store's.
func (s *Objects) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckGet(key, o); err != nil {
		return nil, blob.Info{}, err
	}
	reading, cancel := context.WithCancel(ctx)
	stream, err := s.rpc.Get(reading,
		&portsv1.ObjectRange{Key: key, Version: valid(o.Version), Offset: o.Offset, Length: o.Length})
	var first *portsv1.GetPart
	if err == nil {
		first, err = stream.Recv()
	}
	if err == nil && first.GetObject() == nil {
		err = fault.New(fault.Unavailable, "the server's answer begins without the object")
	}
	if err != nil {
		cancel()
		return nil, blob.Info{}, s.failed(ctx, err, "get object %s", key)
	}
	return &objectReader{from: s, ctx: ctx, key: key, stream: stream, cancel: cancel}, infoOf(first.GetObject()), nil
}

// objectReader reads the bytes of an object as they come.
type objectReader struct {
	from   *Objects
	ctx    context.Context
	key    string
	stream portsv1.Objects_GetClient
	cancel context.CancelFunc
	rest   []byte
	err    error
}

// Read is io.Reader's.
func (r *objectReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil && len(b) > 0 {
		part, err := r.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			r.err = io.EOF
		case err != nil:
			r.err = r.from.failed(r.ctx, err, "read object %s", r.key)
		default:
			r.rest = part.GetBytes()
		}
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close is io.Closer's.
func (r *objectReader) Close() error {
	r.cancel()
	return nil
}

// Stat is blob.Store's.
func (s *Objects) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	o, err := call(ctx, s.client, s.rpc.Stat, &portsv1.ObjectVersion{Key: key, Version: valid(version)})
	return infoOf(o), fault.Wrap(err, "look at object %s", key)
}

// List is blob.Store's.
func (s *Objects) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	if err := blob.CheckList(prefix, limit); err != nil {
		return nil, err
	}
	page, err := call(ctx, s.client, s.rpc.List,
		&portsv1.ObjectList{Prefix: valid(prefix), After: valid(after), Limit: int32(limit)})
	if err != nil {
		return nil, fault.Wrap(err, "list objects %s", prefix)
	}
	out := make([]blob.Info, 0, len(page.Objects))
	for _, o := range page.Objects {
		out = append(out, infoOf(o))
	}
	return out, nil
}

// Join is blob.Store's.
func (s *Objects) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	if err := blob.CheckJoin(dst, parts); err != nil {
		return blob.Info{}, err
	}
	in := &portsv1.JoinRequest{Destination: dst}
	for _, p := range parts {
		in.Parts = append(in.Parts, &portsv1.ObjectRange{Key: p.Key, Offset: p.Offset, Length: p.Length})
	}
	o, err := longCall(ctx, s.client, s.rpc.Join, in, joinTimeout)
	return infoOf(o), fault.Wrap(err, "join %d parts to object %s", len(parts), dst)
}

// joinTimeout bounds calls in which the server may copy an object.
const joinTimeout = 30 * time.Minute

// Copy is blob.Store's.
func (s *Objects) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	if err := blob.CheckKey(dst); err != nil {
		return blob.Info{}, err
	}
	if err := blob.CheckKey(src); err != nil {
		return blob.Info{}, err
	}
	o, err := longCall(ctx, s.client, s.rpc.Copy, &portsv1.CopyRequest{Destination: dst, Source: src}, joinTimeout)
	return infoOf(o), fault.Wrap(err, "copy object %s to %s", src, dst)
}

// Delete is blob.Store's.
func (s *Objects) Delete(ctx context.Context, key, version string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	_, err := call(ctx, s.client, s.rpc.Delete, &portsv1.ObjectVersion{Key: key, Version: valid(version)})
	return fault.Wrap(err, "delete object %s", key)
}

// failed is what a stream ended with.
func (s *Objects) failed(ctx context.Context, err error, format string, args ...any) error {
	return fault.Wrap(s.client.failed(ctx, err), format, args...)
}

func infoOf(o *portsv1.Object) blob.Info {
	if o == nil {
		return blob.Info{}
	}
	return blob.Info{Key: o.GetKey(), Size: o.GetSize(), Version: o.GetVersion(),
		ModTime: time.Unix(0, o.GetModified()).UTC()}
}
