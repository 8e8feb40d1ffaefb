package fakegcs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// Options configure a Server.
type Options struct {
	// Faults are injected into requests; nil injects none.
	Faults *Faults
	// Notify is called after each object that an upload, a copy or a join made, before
	// the client gets its answer. Optional.
	Notify func(Notification)
}

// Notification says that an object was made, as a bucket's notification to a topic does.
type Notification struct {
	Bucket, Object    string
	Generation        string
	ReplacedVersion   string // the generation that the object replaced; "" if there was none
	ObjectDescription []byte // the object's resource as JSON, which is the message's body
}

// Attributes returns the attributes of the notification's message.
func (n Notification) Attributes() map[string]string {
	attributes := map[string]string{
		"notificationConfig": "projects/_/buckets/" + n.Bucket + "/notificationConfigs/1",
		"eventType":          "OBJECT_FINALIZE",
		"payloadFormat":      "JSON_API_V1",
		"bucketId":           n.Bucket,
		"objectId":           n.Object,
		"objectGeneration":   n.Generation,
		"eventTime":          time.Now().UTC().Format(time.RFC3339Nano),
	}
	if n.ReplacedVersion != "" {
		attributes["overwroteGeneration"] = n.ReplacedVersion
	}
	return attributes
}

// Server is the emulator. It is safe for concurrent use.
type Server struct {
	fake    *fakestorage.Server
	options Options

	changes  sync.Mutex // held during each change of an object
	versions sync.Mutex // held while fake-gcs-server looks for a generation, which is not safe

	mu            sync.Mutex
	uploads       map[string]*upload
	requests      map[string]int // by kind, of Requests
	unconditional []string       // of Unconditional
	notifications map[string][]NotificationConfig
}

// New returns an emulator without buckets. It listens nowhere: it is a handler.
func New(o Options) (*Server, error) {
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		return nil, err
	}
	return &Server{fake: fake, options: o, uploads: map[string]*upload{}, requests: map[string]int{}}, nil
}

// Start serves an emulator on a port of the loopback interface until end is called.
// Programs reach it by STORAGE_EMULATOR_HOST=address.
func Start(o Options) (s *Server, address string, end func(), err error) {
	if s, err = New(o); err != nil {
		return nil, "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	return s, "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}

// MakeBucket creates a bucket.
func (s *Server) MakeBucket(name string, versioned bool) {
	s.fake.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: name, VersioningEnabled: versioned})
}

// Names returns the names of a bucket's present objects, also of those that are no keys
// of the port.
func (s *Server) Names(bucket string) ([]string, error) {
	found, err := s.fake.ListObjectsWithOptionsPaginated(bucket, fakestorage.ListOptions{})
	var names []string
	for _, o := range found.Objects {
		names = append(names, o.Name)
	}
	return names, err
}

// Exists reports whether a bucket has an object of the name now.
func (s *Server) Exists(bucket, name string) bool { return s.generationOf(object{bucket, name}) != 0 }

// Versions returns how many versions of an object are there, old ones included.
func (s *Server) Versions(bucket, name string) (int, error) {
	found, err := s.fake.ListObjectsWithOptionsPaginated(bucket, fakestorage.ListOptions{Prefix: name, Versions: true})
	n := 0
	for _, o := range found.Objects {
		if o.Name == name {
			n++
		}
	}
	return n, err
}

// Requests returns how many requests of a kind were answered: "read", "stat", "list",
// "upload", "compose", "rewrite" or "delete".
func (s *Server) Requests(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[kind]
}

// Unconditional returns the requests that changed an object without a condition on its
// generation. The SDK does not repeat such a request.
func (s *Server) Unconditional() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unconditional)
}

func (s *Server) count(kind string, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[kind]++
	if r.Method != http.MethodGet && r.URL.Query().Get("ifGenerationMatch") == "" {
		s.unconditional = append(s.unconditional, kind+" "+r.URL.Path)
	}
}

// ServeHTTP answers a request of a client; see http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.options.Faults.serve(w, r, s.serve)
}

// serve routes a request. Clients escape the slashes of names, so that the parts of the
// path between slashes are those of the interface.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i := range parts {
		if name, err := url.PathUnescape(parts[i]); err == nil {
			parts[i] = name
		}
	}
	switch {
	case len(parts) == 6 && parts[0] == "upload": // upload/storage/v1/b/BUCKET/o
		s.serveUpload(w, r, parts[4])
	case parts[0] != "storage" && r.Method == http.MethodGet: // BUCKET/NAME, of the XML interface
		s.count("read", r)
		bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		s.readXML(w, r, object{bucket, name})
	case len(parts) == 5 && parts[4] == "notificationConfigs" && r.Method == http.MethodGet: // storage/v1/b/BUCKET/…
		s.serveNotifications(w, parts[3])
	case len(parts) < 6 || parts[0] != "storage" || parts[4] != "o": // storage/v1/b/BUCKET/o/NAME
		if len(parts) == 5 && r.Method == http.MethodGet {
			s.count("list", r)
		}
		s.fake.HTTPHandler().ServeHTTP(w, r)
	case len(parts) == 7 && parts[6] == "compose" && r.Method == http.MethodPost:
		s.count("compose", r)
		s.compose(w, r, parts[3], parts[5])
	case len(parts) == 11 && parts[6] == "rewriteTo" && r.Method == http.MethodPost:
		s.count("rewrite", r)
		s.rewrite(w, r, object{parts[3], parts[5]}, object{parts[8], parts[10]})
	case len(parts) == 6 && r.Method == http.MethodDelete:
		s.count("delete", r)
		s.changes.Lock()
		defer s.changes.Unlock()
		s.conditioned(w, r, object{parts[3], parts[5]})
	case len(parts) == 6 && r.Method == http.MethodGet:
		s.count("stat", r)
		s.conditioned(w, r, object{parts[3], parts[5]})
	default:
		s.fake.HTTPHandler().ServeHTTP(w, r)
	}
}

// object names an object.
type object struct{ bucket, name string }

func (o object) path() string {
	return "/storage/v1/b/" + url.PathEscape(o.bucket) + "/o/" + url.PathEscape(o.name)
}

// ask sends a request to fake-gcs-server.
func (s *Server) ask(method, target, contentType string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, bytes.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	r.Header.Set("Accept-Encoding", "gzip") // or fake-gcs-server decompresses what is stored so
	return s.record(r)
}

// record returns the answer of fake-gcs-server.
func (s *Server) record(r *http.Request) *httptest.ResponseRecorder {
	if r.URL.Query().Has("generation") {
		s.versions.Lock()
		defer s.versions.Unlock()
	}
	w := httptest.NewRecorder()
	s.fake.HTTPHandler().ServeHTTP(w, r)
	return w
}

// generationOf returns the present generation of an object, or 0 if it is absent.
func (s *Server) generationOf(o object) int64 {
	answer := s.ask(http.MethodGet, o.path(), "", nil)
	var found struct {
		Generation int64 `json:"generation,string"`
	}
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &found) != nil {
		return 0
	}
	return found.Generation
}

// conditioned answers a request about one object, unless its condition does not hold.
func (s *Server) conditioned(w http.ResponseWriter, r *http.Request, o object) {
	generation := s.generationOf(o)
	if asked := r.URL.Query().Get("generation"); asked != "" {
		generation, _ = strconv.ParseInt(asked, 10, 64) // fake-gcs-server refuses what is no number
	}
	if refused := checkCondition(r.URL.Query(), "ifGenerationMatch", generation); refused != nil {
		refused.write(w)
		return
	}
	forward(w, s.record(r))
}

// readXML answers a read of the XML interface, which the SDK prefers, by one of the JSON
// interface.
func (s *Server) readXML(w http.ResponseWriter, r *http.Request, o object) {
	query := r.URL.Query()
	query.Set("alt", "media")
	if condition := r.Header.Get("X-Goog-If-Generation-Match"); condition != "" {
		query.Set("ifGenerationMatch", condition)
	}
	inner, err := http.NewRequestWithContext(r.Context(), http.MethodGet, o.path()+"?"+query.Encode(), nil)
	if err != nil {
		(&problem{http.StatusBadRequest, "invalid", err.Error()}).write(w)
		return
	}
	inner.Header = r.Header
	s.conditioned(w, inner, o)
}

// problem is an answer that refuses a request.
type problem struct {
	status          int
	reason, message string
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{ // to a client that may have gone
		"code": p.status, "message": p.message,
		"errors": []map[string]string{{"domain": "global", "reason": p.reason, "message": p.message}},
	}})
}

// checkCondition returns a problem if the query has the condition and the generation is
// another one. 0 is the generation of an absent object.
func checkCondition(query url.Values, name string, generation int64) *problem {
	condition := query.Get(name)
	if condition == "" {
		return nil
	}
	want, err := strconv.ParseInt(condition, 10, 64)
	switch {
	case err != nil:
		return &problem{http.StatusBadRequest, "invalid", fmt.Sprintf("%s is %q", name, condition)}
	case want != generation:
		return &problem{http.StatusPreconditionFailed, "conditionNotMet",
			"At least one of the pre-conditions you specified did not hold."}
	}
	return nil
}

// forward writes an answer of fake-gcs-server.
func forward(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = io.Copy(w, answer.Body) // to a client that may have gone
}
