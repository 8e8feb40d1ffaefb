package deployed

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	firestorepb "cloud.google.com/go/firestore/apiv1/firestorepb"
	pubsubpb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/secretmanager/apiv1/secretmanagerpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/iam"
)

// spoken returns permissions as "permission resource".
func spoken(needed []iam.Request) (out []string) {
	for _, at := range needed {
		out = append(out, at.Permission+" "+at.Resource)
	}
	return out
}

func TestRequestsOverGRPCNeedThePermissionsOfTheirResources(t *testing.T) {
	t.Parallel()
	const database, topic, subscription = "projects/p/databases/d", "projects/p/topics/t", "projects/p/subscriptions/s"
	update := &firestorepb.Write_Update{Update: &firestorepb.Document{}}
	exists := func(b bool) *firestorepb.Precondition {
		return &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_Exists{Exists: b}}
	}
	at := &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_UpdateTime{UpdateTime: timestamppb.Now()}}
	commit := func(w *firestorepb.Write) any {
		return &firestorepb.CommitRequest{Database: database, Writes: []*firestorepb.Write{w}}
	}
	for name, c := range map[string]struct {
		request any
		want    []string
	}{
		"create":  {commit(&firestorepb.Write{Operation: update, CurrentDocument: exists(false)}), []string{"create"}},
		"update":  {commit(&firestorepb.Write{Operation: update, CurrentDocument: at}), []string{"update"}},
		"replace": {commit(&firestorepb.Write{Operation: update}), []string{"create", "update"}},
		"delete": {commit(&firestorepb.Write{Operation: &firestorepb.Write_Delete{}, CurrentDocument: at}),
			[]string{"delete"}},
		"get":  {&firestorepb.BatchGetDocumentsRequest{Database: database}, []string{"get"}},
		"list": {&firestorepb.RunQueryRequest{Parent: database + "/documents"}, []string{"list", "get"}},
	} {
		for i := range c.want {
			c.want[i] = "datastore.entities." + c.want[i] + " " + database
		}
		if got, err := neededPermissions(c.request); err != nil || !slices.Equal(spoken(got), c.want) {
			t.Errorf("%s needs %v, %v, want %v", name, got, err, c.want)
		}
	}
	for want, request := range map[string]any{
		"pubsub.topics.publish " + topic:               &pubsubpb.PublishRequest{Topic: topic},
		"pubsub.subscriptions.consume " + subscription: &pubsubpb.PullRequest{Subscription: subscription},
		"secretmanager.versions.access projects/p/secrets/s1": &secretmanagerpb.AccessSecretVersionRequest{
			Name: "projects/p/secrets/s1/versions/latest"},
	} {
		if got, err := neededPermissions(request); err != nil || !slices.Equal(spoken(got), []string{want}) {
			t.Errorf("%T needs %v, %v, want %s", request, got, err, want)
		}
	}
	if _, err := neededPermissions(&pubsubpb.DeleteTopicRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a request that is not known: %v", err)
	}
}

func TestRequestsOfCloudStorageNeedThePermissionsOfTheirObjects(t *testing.T) {
	t.Parallel()
	storage, err := fakegcs.New(fakegcs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := &Installation{Storage: storage}
	const object = "projects/_/buckets/b/objects/a/x y"
	for name, c := range map[string]struct {
		method, target, body string
		want                 []string
	}{
		"a read by XML": {http.MethodGet, "/b/a/x%20y", "", []string{getObject + " " + object}},
		"a stat":        {http.MethodGet, "/storage/v1/b/b/o/a%2Fx%20y", "", []string{getObject + " " + object}},
		"a list":        {http.MethodGet, "/storage/v1/b/b/o?prefix=a", "", []string{listObjects + " projects/_/buckets/b"}},
		"a bucket":      {http.MethodGet, "/storage/v1/b/b", "", []string{getBucket + " projects/_/buckets/b"}},
		"an upload": {http.MethodPost, "/upload/storage/v1/b/b/o?name=a%2Fx%20y", "",
			[]string{createObject + " " + object}},
		"a chunk":  {http.MethodPut, "/upload/storage/v1/b/b/o?upload_id=1", "", nil},
		"a delete": {http.MethodDelete, "/storage/v1/b/b/o/a%2Fx%20y", "", []string{deleteObject + " " + object}},
		"a join": {http.MethodPost, "/storage/v1/b/b/o/a%2Fx%20y/compose", `{"sourceObjects":[{"name":"s"}]}`,
			[]string{createObject + " " + object, getObject + " projects/_/buckets/b/objects/s"}},
		"a copy": {http.MethodPost, "/storage/v1/b/b/o/s/rewriteTo/b/b/o/a%2Fx%20y", "",
			[]string{createObject + " " + object, getObject + " projects/_/buckets/b/objects/s"}},
	} {
		got, err := in.storagePermissions(httptest.NewRequest(c.method, c.target, strings.NewReader(c.body)))
		if err != nil || !slices.Equal(spoken(got), c.want) {
			t.Errorf("%s needs %v, %v, want %v", name, spoken(got), err, c.want)
		}
	}
	if _, err := in.storagePermissions(httptest.NewRequest(http.MethodPatch, "/storage/v1/b/b", nil)); err == nil {
		t.Error("a request that is not known needs nothing")
	}
}
