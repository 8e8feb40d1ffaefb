package fakegcs

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

const (
	maxObject  = 1 << 30   // bytes of an object that the emulator takes
	chunkUnit  = 256 << 10 // chunks but the last are multiples of it
	incomplete = "308"
)

// upload is the session of a resumable upload. fake-gcs-server appends a chunk again
// that a client repeats after a lost answer, and forgets a session that is complete.
type upload struct {
	mu          sync.Mutex
	object      object
	query       url.Values
	description map[string]any
	content     []byte
	answer      *httptest.ResponseRecorder // of the completed upload; nil before
}

// serveUpload answers the requests of uploads.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, bucket string) {
	query := r.URL.Query()
	switch {
	case query.Get("uploadType") == "multipart":
		s.count("upload", r)
		s.uploadOnce(w, r, bucket)
	case query.Get("upload_id") != "":
		s.continueUpload(w, r)
	case query.Get("uploadType") == "resumable":
		s.count("upload", r)
		s.beginUpload(w, r, bucket)
	default:
		(&problem{http.StatusBadRequest, "invalid", "the upload type is not supported here"}).write(w)
	}
}

// uploadOnce makes an object of a request that has its resource and its content.
func (s *Server) uploadOnce(w http.ResponseWriter, r *http.Request, bucket string) {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	parts := multipart.NewReader(io.LimitReader(r.Body, maxObject), parameters["boundary"])
	var bodies [2][]byte
	var contentType string
	for i := range bodies {
		var part *multipart.Part
		if err == nil {
			part, err = parts.NextPart()
		}
		if err == nil {
			contentType = part.Header.Get("Content-Type")
			bodies[i], err = io.ReadAll(part)
		}
	}
	description := map[string]any{}
	if err == nil {
		_, err = parts.NextPart() // an upload that broke off lacks the end
		if err == io.EOF {
			err = json.Unmarshal(bodies[0], &description)
		}
	}
	if err != nil {
		(&problem{http.StatusBadRequest, "parseError", err.Error()}).write(w)
		return
	}
	if description["contentType"] == nil {
		description["contentType"] = contentType
	}
	forward(w, s.make(object{bucket, nameOf(r.URL.Query(), description)}, r.URL.Query(), description, bodies[1]))
}

// nameOf returns the name of the object to make.
func nameOf(query url.Values, description map[string]any) string {
	if name := query.Get("name"); name != "" {
		return name
	}
	name, _ := description["name"].(string)
	return name
}

// beginUpload opens a session.
func (s *Server) beginUpload(w http.ResponseWriter, r *http.Request, bucket string) {
	description := map[string]any{}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxDescription)).Decode(&description); err != nil && err != io.EOF {
		(&problem{http.StatusBadRequest, "parseError", err.Error()}).write(w)
		return
	}
	if found := s.ask(http.MethodGet, "/storage/v1/b/"+url.PathEscape(bucket), "", nil); found.Code != http.StatusOK {
		(&problem{http.StatusNotFound, "notFound", "The specified bucket does not exist."}).write(w)
		return
	}
	id := rand.Text()
	s.mu.Lock()
	s.uploads[id] = &upload{object: object{bucket, nameOf(r.URL.Query(), description)}, query: r.URL.Query(),
		description: description}
	s.mu.Unlock()
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	location := url.URL{Scheme: scheme, Host: r.Host, Path: "/upload/storage/v1/b/" + bucket + "/o",
		RawQuery: url.Values{"uploadType": {"resumable"}, "upload_id": {id}}.Encode()}
	w.Header().Set("Location", location.String())
	w.WriteHeader(http.StatusOK)
}

// continueUpload takes a chunk.
func (s *Server) continueUpload(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	u := s.uploads[r.URL.Query().Get("upload_id")]
	s.mu.Unlock()
	if u == nil {
		(&problem{http.StatusNotFound, "notFound", "no such upload"}).write(w)
		return
	}
	chunk, err := io.ReadAll(io.LimitReader(r.Body, maxObject))
	if err != nil {
		return // the client has gone
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answer == nil {
		last, refused := u.take(r.Header.Get("Content-Range"), chunk)
		if refused == nil && last {
			refused = u.verify(r.Header.Get("X-Goog-Hash"))
		}
		if refused != nil {
			refused.write(w)
			return
		}
		if !last {
			w.Header().Set("X-Http-Status-Code-Override", incomplete)
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(u.content)-1))
			return
		}
		u.answer = s.make(u.object, u.query, u.description, u.content)
		u.content = nil
	}
	again := httptest.NewRecorder()
	again.Code = u.answer.Code
	maps.Copy(again.Header(), u.answer.Header())
	again.Body.Write(u.answer.Body.Bytes())
	forward(w, again)
}

// take adds the bytes of a chunk that the session does not have yet, and reports
// whether it is the last one. The header is "bytes FIRST-LAST/TOTAL", with * for a part
// that is not known or for no bytes.
func (u *upload) take(header string, chunk []byte) (last bool, refused *problem) {
	where, total, _ := strings.Cut(strings.TrimPrefix(header, "bytes "), "/")
	from := int64(len(u.content))
	if where != "*" {
		first, _, _ := strings.Cut(where, "-")
		var err error
		if from, err = strconv.ParseInt(first, 10, 64); err != nil || from > int64(len(u.content)) {
			return false, &problem{http.StatusServiceUnavailable, "backendError", "the chunk is behind a gap: " + header}
		}
	}
	if total == "*" && len(chunk)%chunkUnit != 0 {
		return false, &problem{http.StatusBadRequest, "badRequest", "the chunk is no multiple of 256 KiB"}
	}
	known := int64(len(u.content)) - from
	if known < int64(len(chunk)) {
		u.content = append(u.content, chunk[known:]...)
	}
	size, err := strconv.ParseInt(total, 10, 64)
	return err == nil && size == int64(len(u.content)), nil
}

// verify compares the content with the checksum of the request's header.
func (u *upload) verify(header string) *problem {
	want, ok := strings.CutPrefix(header, "crc32c=")
	if !ok {
		return nil
	}
	sum := crc32.Checksum(u.content, crc32.MakeTable(crc32.Castagnoli))
	if got := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)); got != want {
		return &problem{http.StatusBadRequest, "invalid", "the checksum is " + got + ", not " + want}
	}
	return nil
}
