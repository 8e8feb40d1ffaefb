package fakefirestore

import (
	"slices"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// RunQuery returns the documents of a range of names; see the package's comment.
func (s *Server) RunQuery(in *pb.RunQueryRequest, stream pb.Firestore_RunQueryServer) error {
	database, ok := strings.CutSuffix(in.Parent, "/documents")
	if !ok {
		return status.Errorf(codes.Unimplemented, "the parent %q must be a database's documents", in.Parent)
	}
	if err := s.check(stream.Context(), database); err != nil {
		return err
	}
	r, err := rangeOf(in)
	if err != nil {
		return err
	}
	now := timestamppb.New(s.options.Now())
	for _, doc := range s.find(r) {
		if err := stream.Send(&pb.RunQueryResponse{Document: doc, ReadTime: now}); err != nil {
			return err
		}
	}
	return stream.Send(&pb.RunQueryResponse{ReadTime: now}) // a response without a document tells of progress
}

// nameRange is a query: the first documents from one name on and below another.
type nameRange struct {
	from, to string
	limit    int
}

// rangeOf returns the range that a query is for. All other queries are
// Unimplemented.
func rangeOf(in *pb.RunQueryRequest) (nameRange, error) {
	unimplemented := func(what string) (nameRange, error) {
		return nameRange{}, status.Error(codes.Unimplemented, "a query must have "+what)
	}
	q := in.GetStructuredQuery()
	switch {
	case q == nil || in.ConsistencySelector != nil || in.ExplainOptions != nil:
		return unimplemented("a structure, and no time or transaction")
	case len(q.From) != 1 || q.From[0].AllDescendants || checkID(q.From[0].CollectionId) != nil:
		return unimplemented("one collection")
	case q.Select != nil || q.Where != nil || q.Offset != 0 || q.FindNearest != nil:
		return unimplemented("no filter, selection or offset")
	case len(q.OrderBy) != 1 || q.OrderBy[0].Field.GetFieldPath() != "__name__" ||
		q.OrderBy[0].Direction != pb.StructuredQuery_ASCENDING:
		return unimplemented("the ascending order of names")
	case !q.StartAt.GetBefore() || !q.EndAt.GetBefore() || len(q.StartAt.Values) != 1 || len(q.EndAt.Values) != 1:
		return unimplemented("two cursors, both before a name")
	case q.Limit == nil:
		return unimplemented("a limit")
	}
	collection := in.Parent + "/" + q.From[0].CollectionId + "/"
	r := nameRange{q.StartAt.Values[0].GetReferenceValue(), q.EndAt.Values[0].GetReferenceValue(), int(q.Limit.Value)}
	for _, edge := range []string{r.from, r.to} {
		id, ok := strings.CutPrefix(edge, collection)
		if !ok || strings.Contains(id, "/") || checkID(id) != nil {
			return nameRange{}, status.Errorf(codes.InvalidArgument, "the cursor %q is not a document of %s", edge, collection)
		}
	}
	if r.limit < 1 {
		return nameRange{}, status.Errorf(codes.InvalidArgument, "the limit is %d", r.limit)
	}
	return r, nil
}

// find returns the documents of a range in the order of their names.
func (s *Server) find(r nameRange) (found []*pb.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, doc := range s.documents {
		if r.from <= name && name < r.to {
			found = append(found, doc)
		}
	}
	slices.SortFunc(found, func(a, b *pb.Document) int { return strings.Compare(a.Name, b.Name) })
	return found[:min(r.limit, len(found))]
}
