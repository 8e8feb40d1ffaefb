package fakefirestore

import (
	"maps"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// apply performs a write and returns the update time of its document, or that of
// the deletion. The caller holds mu. Documents are replaced and never changed, so
// that readers may keep them.
func (s *Server) apply(database string, w *pb.Write) (*timestamppb.Timestamp, error) {
	name, fields := w.GetDelete(), w.GetUpdate().GetFields()
	if w.GetUpdate() != nil {
		name = w.GetUpdate().Name
	}
	if name == "" || w.UpdateMask != nil || len(w.UpdateTransforms) > 0 {
		return nil, status.Error(codes.Unimplemented, "a write must replace or delete a whole document")
	}
	if err := checkName(database, name); err != nil {
		return nil, err
	}
	if err := checkSize(name, fields); err != nil {
		return nil, err
	}
	old := s.documents[name]
	if err := checkPrecondition(name, old, w.CurrentDocument); err != nil {
		return nil, err
	}
	now := s.tick()
	s.writes[name] = append(s.writes[name], now)
	updated := timestamppb.New(now)
	switch {
	case w.GetUpdate() == nil:
		delete(s.documents, name)
	case old == nil:
		s.documents[name] = &pb.Document{Name: name, Fields: fields, CreateTime: updated, UpdateTime: updated}
	case maps.EqualFunc(old.Fields, fields, func(a, b *pb.Value) bool { return proto.Equal(a, b) }):
		updated = old.UpdateTime
	default:
		s.documents[name] = &pb.Document{Name: name, Fields: fields, CreateTime: old.CreateTime, UpdateTime: updated}
	}
	return updated, nil
}

// tick returns the time of the next write, which is later than all before. It has
// the resolution of Firestore's times, a microsecond. The caller holds mu.
func (s *Server) tick() time.Time {
	now := s.options.Now().Truncate(time.Microsecond)
	if !now.After(s.last) {
		now = s.last.Add(time.Microsecond)
	}
	s.last = now
	return now
}

// checkPrecondition returns Firestore's error if the document is not as the
// precondition says; doc is nil if it does not exist.
func checkPrecondition(name string, doc *pb.Document, p *pb.Precondition) error {
	switch c := p.GetConditionType().(type) {
	case nil:
		return status.Error(codes.Unimplemented, "a write must have a precondition")
	case *pb.Precondition_Exists:
		switch {
		case c.Exists && doc == nil:
			return status.Errorf(codes.NotFound, "No document to update: %s", name)
		case !c.Exists && doc != nil:
			return status.Errorf(codes.AlreadyExists, "Document already exists: %s", name)
		}
	case *pb.Precondition_UpdateTime:
		switch {
		case doc == nil:
			return status.Errorf(codes.NotFound, "No document to update: %s", name)
		case !c.UpdateTime.AsTime().Equal(doc.UpdateTime.AsTime()):
			return status.Errorf(codes.FailedPrecondition,
				"the stored version (%d) does not match the required base version (%d)", doc.UpdateTime.AsTime().UnixMicro(),
				c.UpdateTime.AsTime().UnixMicro())
		}
	}
	return nil
}

// maxDocument is Firestore's limit of a document's size, in bytes.
const maxDocument = 1<<20 - 4

// checkSize refuses a document that is too large. It counts as Firestore does: the
// parts of the name, the names of the fields and their values, and overheads.
func checkSize(name string, fields map[string]*pb.Value) error {
	size := len(name) + 32
	for field, value := range fields {
		size += len(field) + 1
		switch v := value.ValueType.(type) {
		case *pb.Value_BytesValue:
			size += len(v.BytesValue)
		case *pb.Value_StringValue:
			size += len(v.StringValue) + 1
		default:
			return status.Errorf(codes.Unimplemented, "field %s must be bytes or a string", field)
		}
	}
	if size > maxDocument {
		return status.Errorf(codes.InvalidArgument, "Document %q cannot be written because its size (%d bytes) exceeds "+
			"the maximum allowed size of 1,048,572 bytes.", name, size)
	}
	return nil
}
