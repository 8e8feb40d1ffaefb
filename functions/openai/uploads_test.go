package openai

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/api"
	"rollout/functions/reclaim"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// watch is a clock that a test sets. It is safe for concurrent use.
type watch struct{ ahead atomic.Int64 }

var morning = time.Date(2026, 3, 4, 8, 0, 0, 0, time.UTC)

func (w *watch) Now() time.Time          { return morning.Add(time.Duration(w.ahead.Load())) }
func (w *watch) advance(d time.Duration) { w.ahead.Add(int64(d)) }

// uploading is a client of a server over stores in memory.
type uploading struct {
	*testing.T
	host.Ports
	*watch
	handler http.Handler
}

func newUploading(t *testing.T) *uploading {
	t.Helper()
	w := &watch{}
	u := &uploading{T: t, Ports: hosttest.With(w), watch: w}
	u.serve(u.Ports)
	return u
}

// serve has a new server answer, over these ports.
func (u *uploading) serve(p host.Ports) {
	d := config.DefaultDeployment()
	u.handler = New(p, d, api.New(p, d, cloud.OneMachine())).Handler()
}

// reply is what the tests read of an answer.
type reply struct {
	code   int
	retry  string
	body   string
	ID     string
	Status string
	File   *FileObject
	Error  struct{ Message, Param string }
}

func (u *uploading) do(r *http.Request) (out reply) {
	u.Helper()
	w := httptest.NewRecorder()
	u.handler.ServeHTTP(w, r)
	out.code, out.retry, out.body = w.Code, w.Header().Get("X-Should-Retry"), w.Body.String()
	_ = json.Unmarshal(w.Body.Bytes(), &out) // contents of files are no JSON
	return out
}

func (u *uploading) ask(method, path, body string) reply {
	u.Helper()
	return u.do(httptest.NewRequestWithContext(u.Context(), method, path, strings.NewReader(body)))
}

// begin creates an upload of that many bytes.
func (u *uploading) begin(size int) (id string) {
	u.Helper()
	const body = `{"filename":"a.jsonl","purpose":"batch","bytes":%d,"mime_type":"x"}`
	r := u.ask("POST", "/v1/uploads", fmt.Sprintf(body, size))
	if r.code != 200 || r.Status != uploadPending {
		u.Fatalf("create: %d %s", r.code, r.body)
	}
	return r.ID
}

func (u *uploading) tryPart(id, data string) reply {
	u.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, err := form.CreateFormFile("data", "upload")
	if err == nil {
		_, err = io.WriteString(file, data)
	}
	if err != nil || form.Close() != nil {
		u.Fatal("a form can't be written")
	}
	r := httptest.NewRequestWithContext(u.Context(), "POST", "/v1/uploads/"+id+"/parts", &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	return u.do(r)
}

func (u *uploading) part(id, data string) string {
	u.Helper()
	r := u.tryPart(id, data)
	if r.code != 200 {
		u.Fatalf("add a part: %d %s", r.code, r.body)
	}
	return r.ID
}

func completing(sum string, parts ...string) string {
	b, _ := json.Marshal(completion{parts, sum}) // strings are always JSON
	return string(b)
}

func (u *uploading) complete(id, sum string, parts ...string) reply {
	u.Helper()
	return u.ask("POST", "/v1/uploads/"+id+"/complete", completing(sum, parts...))
}

func (u *uploading) cancel(id string) reply { return u.ask("POST", "/v1/uploads/"+id+"/cancel", "") }

// want checks the code of an answer, and what its body has.
func (u *uploading) want(r reply, code int, has string) {
	u.Helper()
	if r.code != code || !strings.Contains(r.body, has) {
		u.Errorf("%d %s, want %d with %q", r.code, r.body, code, has)
	}
	if r.code >= 400 && r.code < 500 && r.retry != "false" {
		u.Errorf("%d asks the client to repeat it", r.code)
	}
}

// wantFile checks that an answer has a file of these bytes, and that nothing else is stored.
func (u *uploading) wantFile(r reply, content string) {
	u.Helper()
	if r.code != 200 || r.Status != uploadCompleted || r.File == nil || r.File.Bytes != int64(len(content)) {
		u.Fatalf("%d %s, want a file of %d bytes", r.code, r.body, len(content))
	}
	if got := u.ask("GET", "/v1/files/"+r.File.ID+"/content", ""); got.code != 200 || got.body != content {
		u.Errorf("the file is %d %.80q, want %.80q", got.code, got.body, content)
	}
	u.wantStored(1)
}

// wantStored checks how many objects of files there are, and that there are no parts.
func (u *uploading) wantStored(files int) {
	u.Helper()
	if n := u.count(record.FilesPrefix); n != files {
		u.Errorf("%d objects of files are stored, want %d", n, files)
	}
	if n := u.count(record.UploadPartsPrefix); n != 0 {
		u.Errorf("%d parts are still stored", n)
	}
}

func (u *uploading) count(prefix string) int {
	u.Helper()
	found, err := u.Blobs.List(u.Context(), prefix, "", blob.MaxList)
	if err != nil {
		u.Fatal(err)
	}
	return len(found)
}

func sumOf(content string) string {
	sum := md5.Sum([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestUploadsAreJoinedInTheOrderOfTheClient(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	id := u.begin(6)
	one, two := u.part(id, "one"), u.part(id, "two")
	sum := strings.ToUpper(sumOf("twoone"))
	done := u.complete(id, sum, two, one)
	u.wantFile(done, "twoone")
	if again := u.complete(id, sum, two, one); again.body != done.body {
		t.Errorf("repeated, it is %s, was %s", again.body, done.body)
	}
	u.want(u.complete(id, "", one, two), 409, "the upload is completed")
	u.want(u.cancel(id), 409, "the upload is completed")
	u.want(u.tryPart(id, "more"), 409, "the upload is completed")
	u.wantFile(done, "twoone")
}

func TestMoreThanFourThousandParts(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	const n = 4100
	id, parts, content := u.begin(5*n), make([]string, n), strings.Builder{}
	for i := range parts {
		piece := fmt.Sprintf("%05d", i)
		content.WriteString(piece)
		parts[i] = u.part(id, piece)
	}
	u.wantFile(u.complete(id, sumOf(content.String()), parts...), content.String())
}

// A completion that is wrong leaves nothing, and a right one may follow.
func TestRefusedCompletions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body  func(one, two, foreign string) string
		code  int
		says  string
		param string
	}{
		"a wrong sum": {func(one, two, _ string) string { return completing(sumOf("x"), one, two) }, 400,
			sumOf("onetwo"), "md5"},
		"a part is missing": {func(one, _, _ string) string { return completing("", one) }, 400,
			"3 bytes, and the upload was created with 6", "part_ids"},
		"a part twice too often": {func(one, two, _ string) string { return completing("", one, two, two) }, 400,
			"9 bytes", "part_ids"},
		"no part": {func(_, _, _ string) string { return completing("") }, 400, "names 0", "part_ids"},
		"too many parts": {func(one, _, _ string) string {
			return completing("", strings.Split(strings.Repeat(one+" ", blob.MaxParts)+one, " ")...)
		}, 400, "names 10001", "part_ids"},
		"a part of another upload": {func(one, _, foreign string) string { return completing("", one, foreign) }, 400,
			"find the parts", "part_ids"},
		"a hostile part": {func(one, _, _ string) string { return completing("", one, "../"+one[3:]) }, 400,
			"no part has the id", "part_ids"},
		"no JSON": {func(_, _, _ string) string { return "part_ids" }, 400, "JSON", ""},
		"a body that is too long": {func(_, _, _ string) string {
			return completing(strings.Repeat("0", maxCompletion))
		}, 413, "longer than 524288 bytes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUploading(t)
			id, other := u.begin(6), u.begin(3)
			one, two, foreign := u.part(id, "one"), u.part(id, "two"), u.part(other, "two")
			r := u.ask("POST", "/v1/uploads/"+id+"/complete", c.body(one, two, foreign))
			u.want(r, c.code, c.says)
			if r.Error.Param != c.param {
				t.Errorf("the parameter is %q, want %q", r.Error.Param, c.param)
			}
			if n := u.count(record.FilesPrefix); n != 0 {
				t.Errorf("%d objects of files are left", n)
			}
			u.want(u.cancel(other), 200, uploadCancelled)
			u.wantFile(u.complete(id, "", one, two), "onetwo")
		})
	}
}

// Ids of uploads come from outside, and become parts of keys.
func TestHostileUploadIDs(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	good := u.begin(1)
	for _, id := range []string{"upload_", good[:len(good)-1], good + "A", strings.ToLower(good), good[7:],
		"part_" + good[7:], "upload_" + strings.Repeat("A", 26), "upload_..%2F..%2F..%2Ffiles%2Fx" + good[20:],
		"%2e%2e", "%0a"} {
		u.want(u.tryPart(id, "x"), 404, "no such Upload")
		u.want(u.complete(id, "", "part_"+strings.Repeat("A", 26)), 404, "no such Upload")
		u.want(u.cancel(id), 404, "no such Upload")
	}
}

func TestPartsHaveABound(t *testing.T) {
	t.Parallel()
	if b, err := io.ReadAll(&bounded{from: strings.NewReader("four"), left: 4}); err != nil || string(b) != "four" {
		t.Errorf("a part of all bytes that one may have: %q, %v", b, err)
	}
	if _, err := io.ReadAll(&bounded{from: strings.NewReader("fives"), left: 4}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a part that is a byte too long: %v", err)
	}
}

func TestCancelledUploadsLeaveNothing(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	id := u.begin(3)
	one := u.part(id, "one")
	u.want(u.cancel(id), 200, uploadCancelled)
	u.want(u.cancel(id), 200, uploadCancelled)
	u.want(u.complete(id, "", one), 409, "the upload is cancelled")
	u.wantStored(0)
}

// joining is a bucket that calls a function after each join.
type joining struct {
	blob.Store
	then func()
}

func (j joining) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	info, err := j.Store.Join(ctx, dst, parts)
	j.then()
	return info, err
}

// while has a function called in the middle of the completions that follow.
func (u *uploading) while(then func()) {
	p, stays := u.Ports, u.handler
	p.Blobs = joining{p.Blobs, func() {
		middle := u.handler
		u.handler = stays
		then()
		u.handler = middle
	}}
	u.serve(p)
}

// Whatever a request finds while another one joins, the document of the upload decides.
func TestRequestsDuringACompletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(u *uploading, id, one, two string)
		says string // of the completion; "" if it makes the file
	}{
		"a cancellation": {func(u *uploading, id, _, _ string) {
			u.want(u.cancel(id), 200, uploadCancelled)
		}, "the upload is cancelled"},
		"the end of the hour, which a request meets": {func(u *uploading, id, _, _ string) {
			u.advance(record.UploadLasts)
			u.want(u.tryPart(id, "x"), 409, "the upload is expired")
		}, "the upload is expired"},
		"the end of the hour": {func(u *uploading, _, _, _ string) { u.advance(record.UploadLasts) }, ""},
		"the same request": {func(u *uploading, id, one, two string) {
			u.wantFile(u.complete(id, "", one, two), "onetwo")
		}, ""},
		"the other order": {func(u *uploading, id, one, two string) {
			u.want(u.complete(id, "", two, one), 409, "another request completes the upload otherwise")
		}, ""},
		"another sum": {func(u *uploading, id, one, two string) {
			u.want(u.complete(id, sumOf("onetwo"), one, two), 409, "another request completes the upload otherwise")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUploading(t)
			id := u.begin(6)
			one, two := u.part(id, "one"), u.part(id, "two")
			u.while(func() { c.then(u, id, one, two) })
			r := u.complete(id, "", one, two)
			if c.says == "" {
				u.wantFile(r, "onetwo")
				return
			}
			u.want(r, 409, c.says)
			u.wantStored(0)
		})
	}
}

// A process ends at any of its writes. The client repeats its request, or cancels the upload, or
// goes away.
func TestCrashesDuringACompletion(t *testing.T) {
	t.Parallel()
	for writes := range 3 { // the claim, the completion, the file
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d writes, late %v", writes, late), func(t *testing.T) {
				t.Parallel()
				crashed := func() (u *uploading, id, part string) {
					u = newUploading(t)
					if err := reclaim.SweepOrphans(t.Context(), u.Ports, reclaim.SweepOptions{}); err != nil {
						t.Fatal(err) // it leaves what is older than its first call
					}
					id = u.begin(3)
					part = u.part(id, "one")
					u.serve(hosttest.Crashing(u.Ports, writes, late))
					if r := u.complete(id, "", part); r.code < 500 {
						t.Fatalf("it did not crash: %d %s", r.code, r.body)
					}
					u.serve(u.Ports)
					return u, id, part
				}
				completed := writes == 2 || writes == 1 && late
				u, id, part := crashed()
				u.wantFile(u.complete(id, "", part), "one")
				u, id, part = crashed()
				if completed {
					u.want(u.cancel(id), 409, "the upload is completed")
					u.wantFile(u.complete(id, "", part), "one")
				} else {
					u.want(u.cancel(id), 200, uploadCancelled)
					u.wantStored(0)
				}
				u, _, _ = crashed()
				u.advance(record.UploadKept + 2*time.Hour)
				if err := reclaim.SweepOrphans(t.Context(), u.Ports, reclaim.SweepOptions{}); err != nil {
					t.Error(err)
				}
				files := 0
				if writes == 2 && late {
					files = 1
				}
				u.wantStored(files)
				u, id, part = crashed()
				if u.advance(record.UploadLasts); completed {
					u.wantFile(u.complete(id, "", part), "one")
				} else {
					u.want(u.complete(id, "", part), 409, "the upload is expired")
					u.want(u.cancel(id), 409, "the upload is expired")
					u.wantStored(0)
				}
			})
		}
	}
}

func TestADeletedFileIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	id := u.begin(3)
	part := u.part(id, "one")
	done := u.complete(id, "", part)
	u.wantFile(done, "one")
	u.want(u.ask("DELETE", "/v1/files/"+done.File.ID, ""), 200, "true")
	u.want(u.complete(id, "", part), 200, uploadCompleted)
	u.want(u.ask("GET", "/v1/files/"+done.File.ID, ""), 404, "no such File")
	u.wantStored(0)
}

// endless is a bucket whose joins last as long as they may.
type endless struct{ blob.Store }

func (endless) Join(ctx context.Context, _ string, _ []blob.Range) (blob.Info, error) {
	<-ctx.Done()
	return blob.Info{}, fault.WithKind(fault.Canceled, ctx.Err(), "join")
}

// A function ends at its time. The client is told before that, whatever the function's time is.
func TestAJoinEndsBeforeItsFunction(t *testing.T) {
	t.Parallel()
	for function, join := range map[time.Duration]time.Duration{
		5 * time.Minute:  5*time.Minute - joinReserve,
		20 * time.Second: 15 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			u := newUploading(t)
			id := u.begin(3)
			part := u.part(id, "one")
			p := u.Ports
			p.Blobs = endless{p.Blobs}
			u.serve(p)
			ctx, cancel := context.WithTimeout(t.Context(), function)
			defer cancel()
			began, body := time.Now(), strings.NewReader(completing("", part))
			r := u.do(httptest.NewRequestWithContext(ctx, "POST", "/v1/uploads/"+id+"/complete", body))
			u.want(r, 413, "upload fewer bytes")
			if took := time.Since(began); took != join {
				t.Errorf("of %s it joined for %s, want %s", function, took, join)
			}
			u.serve(u.Ports)
			u.wantFile(u.complete(id, "", part), "one")
		})
	}
}

// What reclaim may delete is not found any more.
func TestUploadsAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	id := u.begin(3)
	part := u.part(id, "one")
	done := u.complete(id, "", part)
	u.advance(record.UploadKept - time.Second)
	u.want(u.complete(id, "", part), 200, uploadCompleted)
	u.advance(record.UploadKept)
	for _, r := range []reply{u.complete(id, "", part), u.cancel(id), u.tryPart(id, "x")} {
		u.want(r, 404, "no such Upload")
	}
	u.wantFile(done, "one")
}
