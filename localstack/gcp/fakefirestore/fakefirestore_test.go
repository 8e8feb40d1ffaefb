package fakefirestore

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	firestore "cloud.google.com/go/firestore/apiv1"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const database = "projects/p/databases/(default)"

func nameOf(id string) string { return database + "/documents/c/" + id }

// client calls a server as the official SDK does, without repetitions.
type client struct {
	*firestore.Client
	ctx context.Context
}

func newClient(t *testing.T, o Options) (*Server, client) {
	t.Helper()
	s := Start(t, o)
	c, err := firestore.NewClient(t.Context(), s.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, client{c, metadata.AppendToOutgoingContext(t.Context(), "google-cloud-resource-prefix", database)}
}

// write sends a write and returns its update time.
func (c client) write(w *pb.Write) (*timestamppb.Timestamp, error) {
	once := gax.WithRetry(func() gax.Retryer { return gax.OnCodes(nil, gax.Backoff{}) })
	out, err := c.Commit(c.ctx, &pb.CommitRequest{Database: database, Writes: []*pb.Write{w}}, once)
	if err != nil {
		return nil, err
	}
	return out.WriteResults[0].UpdateTime, nil
}

func update(id, text string, p *pb.Precondition) *pb.Write {
	value := &pb.Value{ValueType: &pb.Value_StringValue{StringValue: text}}
	doc := &pb.Document{Name: nameOf(id), Fields: map[string]*pb.Value{"v": value}}
	return &pb.Write{Operation: &pb.Write_Update{Update: doc}, CurrentDocument: p}
}

func remove(id string, p *pb.Precondition) *pb.Write {
	return &pb.Write{Operation: &pb.Write_Delete{Delete: nameOf(id)}, CurrentDocument: p}
}

func exists(yes bool) *pb.Precondition {
	return &pb.Precondition{ConditionType: &pb.Precondition_Exists{Exists: yes}}
}

func updatedAt(t *timestamppb.Timestamp) *pb.Precondition {
	return &pb.Precondition{ConditionType: &pb.Precondition_UpdateTime{UpdateTime: t}}
}

// must returns the update time of a write that succeeded.
func must(t *testing.T) func(*timestamppb.Timestamp, error) *timestamppb.Timestamp {
	return func(at *timestamppb.Timestamp, err error) *timestamppb.Timestamp {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
}

func wantCode(t *testing.T, err error, want codes.Code, what string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

func TestPreconditionsDecide(t *testing.T) {
	t.Parallel()
	_, c := newClient(t, Options{})
	_, err := c.write(update("a", "1", exists(true)))
	wantCode(t, err, codes.NotFound, "update of an absent document")
	first := must(t)(c.write(update("a", "1", exists(false))))
	_, err = c.write(update("a", "2", exists(false)))
	wantCode(t, err, codes.AlreadyExists, "second create")
	second := must(t)(c.write(update("a", "2", updatedAt(first))))
	_, err = c.write(update("a", "3", updatedAt(first)))
	wantCode(t, err, codes.FailedPrecondition, "update of a stale time")
	_, err = c.write(remove("a", updatedAt(first)))
	wantCode(t, err, codes.FailedPrecondition, "delete of a stale time")
	must(t)(c.write(remove("a", updatedAt(second))))
	_, err = c.write(update("a", "3", updatedAt(second)))
	wantCode(t, err, codes.NotFound, "update of a deleted document")
	_, err = c.write(update("a", "3", nil))
	wantCode(t, err, codes.Unimplemented, "write without a precondition")
}

func TestUpdateTimesGrowWhileTheClockStands(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 123456789, time.UTC)
	_, c := newClient(t, Options{Now: func() time.Time { return now }})
	first := must(t)(c.write(update("a", "1", exists(false))))
	if got := first.AsTime(); !got.Equal(now.Truncate(time.Microsecond)) {
		t.Errorf("the first update time is %v, want the clock's microsecond", got)
	}
	must(t)(c.write(remove("a", updatedAt(first))))
	again := must(t)(c.write(update("a", "1", exists(false))))
	if !again.AsTime().After(first.AsTime()) {
		t.Errorf("created at %v, deleted, and created at %v", first.AsTime(), again.AsTime())
	}
	if same := must(t)(c.write(update("a", "1", updatedAt(again)))); !same.AsTime().Equal(again.AsTime()) {
		t.Errorf("a write that changes nothing moved the update time from %v to %v", again.AsTime(), same.AsTime())
	}
}

func TestLimitsAreFirestores(t *testing.T) {
	t.Parallel()
	_, c := newClient(t, Options{})
	for what, id := range map[string]string{"a dot": ".", "two dots": "..", "reserved": "__x__", "empty": "",
		"a slash": "a/b", "too long": strings.Repeat("x", 1501)} {
		_, err := c.write(update(id, "1", exists(false)))
		wantCode(t, err, codes.InvalidArgument, "an id that is "+what)
	}
	must(t)(c.write(update(strings.Repeat("x", 1500), strings.Repeat("v", 1_040_000), exists(false))))
	_, err := c.write(update("a", strings.Repeat("v", 1<<20), exists(false)))
	wantCode(t, err, codes.InvalidArgument, "a document of 1 MiB")
	_, err = c.Commit(context.Background(), &pb.CommitRequest{Database: database})
	wantCode(t, err, codes.InvalidArgument, "a request without its header")
}

func TestQueryReturnsARangeInOrder(t *testing.T) {
	t.Parallel()
	_, c := newClient(t, Options{})
	for _, id := range []string{"d", "b", "a", "c", "e"} {
		must(t)(c.write(update(id, id, exists(false))))
	}
	edge := func(id string) *pb.Cursor {
		value := &pb.Value{ValueType: &pb.Value_ReferenceValue{ReferenceValue: nameOf(id)}}
		return &pb.Cursor{Before: true, Values: []*pb.Value{value}}
	}
	query := func(limit int32, change func(*pb.StructuredQuery)) (string, error) {
		q := &pb.StructuredQuery{
			From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: "c"}},
			OrderBy: []*pb.StructuredQuery_Order{{
				Field: &pb.StructuredQuery_FieldReference{FieldPath: "__name__"}, Direction: 1,
			}},
			StartAt: edge("b"), EndAt: edge("e"), Limit: wrapperspb.Int32(limit),
		}
		change(q)
		stream, err := c.RunQuery(c.ctx, &pb.RunQueryRequest{Parent: database + "/documents",
			QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: q}})
		ids := ""
		for err == nil {
			var out *pb.RunQueryResponse
			if out, err = stream.Recv(); err == nil && out.Document != nil {
				ids += strings.TrimPrefix(out.Document.Name, nameOf(""))
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return ids, err
	}
	unchanged := func(*pb.StructuredQuery) {}
	for limit, want := range map[int32]string{9: "bcd", 2: "bc"} {
		if got, err := query(limit, unchanged); got != want || err != nil {
			t.Errorf("limit %d: %q, %v, want %q", limit, got, err, want)
		}
	}
	_, err := query(9, func(q *pb.StructuredQuery) { q.Offset = 1 })
	wantCode(t, err, codes.Unimplemented, "a query with an offset")
	_, err = query(9, func(q *pb.StructuredQuery) { q.StartAt.Before = false })
	wantCode(t, err, codes.Unimplemented, "a query after a name")
}

func TestFaultsAreAsAskedFor(t *testing.T) {
	t.Parallel()
	_, c := newClient(t, Options{Faults: Faults{Aborted: 100}})
	_, err := c.write(update("a", "1", exists(false)))
	wantCode(t, err, codes.Aborted, "commit")
	s, c := newClient(t, Options{Faults: Faults{LostReplies: 100}})
	_, err = c.write(update("a", "1", exists(false)))
	wantCode(t, err, codes.Unavailable, "commit whose reply is lost")
	if s.documents[nameOf("a")] == nil {
		t.Error("the commit whose reply was lost was not performed")
	}
}

func TestBusiestCountsWritesInAnyWindow(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s, c := newClient(t, Options{Now: func() time.Time { return now }})
	write := func(id string, after time.Duration) {
		now = now.Add(after)
		old := s.documents[nameOf(id)]
		condition := exists(false)
		if old != nil {
			condition = updatedAt(old.UpdateTime)
		}
		must(t)(c.write(update(id, now.String(), condition)))
	}
	for range 5 {
		write("slow", 6*time.Second)
	}
	for range 3 {
		write("fast", time.Second)
	}
	for window, want := range map[time.Duration]int{10 * time.Second: 3, 2 * time.Second: 2, time.Hour: 5} {
		name, n := s.Busiest(window)
		id := map[bool]string{true: "slow", false: "fast"}[window == time.Hour]
		if n != want || name != nameOf(id) {
			t.Errorf("within %v: %s %d times, want %s %d times", window, name, n, id, want)
		}
	}
	if _, err := c.write(remove("slow", updatedAt(timestamppb.Now()))); err == nil {
		t.Fatal("a stale delete succeeded")
	}
	if _, n := s.Busiest(time.Hour); n != 5 {
		t.Errorf("a refused write counts: %d", n)
	}
}
