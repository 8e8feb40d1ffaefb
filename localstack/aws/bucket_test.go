package emulators

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/fault"
)

const mib = 1 << 20

// uploads lists the keys of unfinished multipart uploads in the endpoint's bucket.
func (e Endpoint) uploads(t *testing.T) []string {
	t.Helper()
	client := s3.NewFromConfig(e.Config(t.Context(), t), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &e.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, u := range out.Uploads {
		keys = append(keys, *u.Key)
	}
	return keys
}

// Parts of an unfinished upload are invisible and cost money.
func TestFailedUploadLeavesNoParts(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	b := e.Blobs(t)
	large := func() io.Reader { return strings.NewReader(strings.Repeat("x", 12*mib)) }
	if _, err := b.Put(t.Context(), "there", large(), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		try  func() error
		want fault.Kind
	}{
		"the reader fails": {func() error {
			_, err := b.Put(t.Context(), "a", io.MultiReader(large(), iotest.ErrReader(fault.New(fault.Corrupt, "broken"))),
				blob.PutOptions{})
			return err
		}, fault.Corrupt},
		"the object exists": {func() error {
			_, err := b.Put(t.Context(), "there", large(), blob.PutOptions{CreateOnly: true})
			return err
		}, fault.Conflict},
		"the caller cancels": {func() error {
			_, err := b.Put(ctx, "b", io.MultiReader(large(), cancelReader{cancel}, large()), blob.PutOptions{})
			return err
		}, fault.Canceled},
		"the target of a join exists": {func() error {
			_, err := b.Join(t.Context(), "there", []blob.Range{{Key: "there"}})
			return err
		}, fault.Conflict},
	} {
		if err := c.try(); !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if left := e.uploads(t); len(left) > 0 {
			t.Errorf("%s: there are unfinished uploads of %q", name, left)
		}
	}
}

// cancelReader cancels when it is read.
type cancelReader struct{ cancel func() }

func (c cancelReader) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

// Runs refer to versions of their inputs.
func TestUnversionedBucketIsRefused(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	client := s3.NewFromConfig(e.Config(t.Context(), t), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &e.Bucket}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &e.Bucket, Key: new("k"),
		Body: strings.NewReader("x")}); err != nil {
		t.Fatal(err)
	}
	b := aws.NewBucket(e.Config(t.Context(), t), e.Bucket, aws.BucketOptions{})
	_, putErr := b.Put(t.Context(), "k", strings.NewReader("y"), blob.PutOptions{})
	_, statErr := b.Stat(t.Context(), "k", "")
	_, _, getErr := b.Get(t.Context(), "k", blob.GetOptions{})
	for name, err := range map[string]error{"put": putErr, "stat": statErr, "get": getErr} {
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "put-bucket-versioning --bucket "+e.Bucket) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMissingBucketIsNamed(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	_, err := e.Blobs(t).Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{})
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), e.Bucket) {
		t.Errorf("got %v, want not found with the bucket's name", err)
	}
}

// S3 rejects the copy of a range from an object of at most the smallest part's
// size.
func TestJoinOfObjectsOfTheSmallestPartSize(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	b := e.Blobs(t)
	content := strings.Repeat("0123456789abcdef", 5*mib/16)
	if _, err := b.Put(t.Context(), "a", strings.NewReader(content), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := b.Join(t.Context(), "b", []blob.Range{{Key: "a"}, {Key: "a"}, {Key: "a", Length: 3}}); err != nil ||
		info.Size != 10*mib+3 {
		t.Fatalf("%+v, %v", info, err)
	}
	r, _, err := b.Get(t.Context(), "b", blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != content+content+content[:3] {
		t.Errorf("the joined object has %d bytes or other content; %v", len(got), err)
	}
}
