package openai

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"rollout/functions/api"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// breaking is a bucket whose objects can be read in part alone.
type breaking struct{ blob.Store }

func (b breaking) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	body, info, err := b.Store.Get(ctx, key, o)
	if err != nil {
		return nil, info, err
	}
	_ = body.Close()
	away := iotest.ErrReader(fault.New(fault.Unavailable, "the bucket is away"))
	return io.NopCloser(io.MultiReader(strings.NewReader("one "), away)), info, nil
}

// A client never takes a part of a file for the whole, also where a framework catches panics, and
// where the length of an answer is not said.
func TestContentsAreWholeOrBroken(t *testing.T) {
	t.Parallel()
	for name, chunked := range map[string]bool{"with its length": false, "in chunks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUploading(t)
			whole := strings.Repeat("one ", 10<<10)
			id := u.begin(len(whole))
			done := u.complete(id, "", u.part(id, whole))
			for _, breaks := range []bool{false, true} {
				p, d := u.Ports, config.DefaultDeployment()
				if breaks {
					p.Blobs = breaking{p.Blobs}
				}
				s := New(p, d, api.New(p, d, cloud.OneMachine()))
				if chunked {
					s = s.Chunked()
				}
				handler := s.Handler()
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() { _ = recover() }()
					handler.ServeHTTP(w, r)
				}))
				r, err := http.Get(server.URL + "/v1/files/" + done.File.ID + "/content")
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(r.Body)
				_ = r.Body.Close()
				server.Close()
				if breaks != (err != nil) || !breaks && string(content) != whole || chunked != (r.ContentLength < 0) {
					t.Errorf("it breaks: %v, and the client reads %d of %d bytes, %v", breaks, len(content), r.ContentLength, err)
				}
			}
		})
	}
}
