package fakegcs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"strconv"
)

const (
	maxDescription = 1 << 20 // bytes of a request without an object's content
	composeParts   = 32      // sources of one join
)

// make makes an object, under the condition of the query. description is the object's
// resource in the request, nil for none.
func (s *Server) make(o object, query url.Values, description map[string]any,
	content []byte) *httptest.ResponseRecorder {
	s.changes.Lock()
	before := s.generationOf(o)
	answer := s.insert(o, query, description, content)
	s.changes.Unlock()
	if s.options.Notify != nil && answer.Code == http.StatusOK {
		n := Notification{Bucket: o.bucket, Object: o.name, ObjectDescription: bytes.Clone(answer.Body.Bytes())}
		var made struct {
			Generation string `json:"generation"`
		}
		if json.Unmarshal(n.ObjectDescription, &made) == nil {
			n.Generation = made.Generation
		}
		if before != 0 {
			n.ReplacedVersion = strconv.FormatInt(before, 10)
		}
		s.options.Notify(n)
	}
	return answer
}

// insert sends an upload in one request to fake-gcs-server.
func (s *Server) insert(o object, query url.Values, description map[string]any,
	content []byte) *httptest.ResponseRecorder {
	if description == nil {
		description = map[string]any{}
	}
	description["name"] = o.name
	described, err := json.Marshal(description)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	contentType, _ := description["contentType"].(string)
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	for _, part := range []struct {
		contentType string
		content     []byte
	}{{"application/json", described}, {contentType, content}} {
		w, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {part.contentType}})
		if err == nil {
			_, err = w.Write(part.content)
		}
		if err != nil {
			panic(err) // a buffer takes everything
		}
	}
	_ = parts.Close() // likewise
	target := url.Values{"uploadType": {"multipart"}, "name": {o.name}}
	for _, condition := range []string{"ifGenerationMatch", "ifGenerationNotMatch"} {
		if query.Has(condition) {
			target[condition] = query[condition]
		}
	}
	return s.ask(http.MethodPost, "/upload/storage/v1/b/"+url.PathEscape(o.bucket)+"/o?"+target.Encode(),
		"multipart/related; boundary="+parts.Boundary(), body.Bytes())
}

// read returns the content and the resource of an object's generation; "" is the present
// one.
func (s *Server) read(o object, generation string) ([]byte, map[string]any, *problem) {
	query := url.Values{}
	if generation != "" {
		query.Set("generation", generation)
	}
	described := s.ask(http.MethodGet, o.path()+"?"+query.Encode(), "", nil)
	query.Set("alt", "media")
	content := s.ask(http.MethodGet, o.path()+"?"+query.Encode(), "", nil)
	description := map[string]any{}
	if described.Code != http.StatusOK || content.Code != http.StatusOK ||
		json.Unmarshal(described.Body.Bytes(), &description) != nil {
		return nil, nil, &problem{http.StatusNotFound, "notFound", "No such object: " + o.bucket + "/" + o.name}
	}
	return content.Body.Bytes(), description, nil
}

// compose joins objects. fake-gcs-server takes the present generations of the sources,
// and ignores all conditions.
func (s *Server) compose(w http.ResponseWriter, r *http.Request, bucket, name string) {
	var in struct {
		Destination map[string]any `json:"destination"`
		Sources     []struct {
			Name       string `json:"name"`
			Generation string `json:"generation"`
			Conditions struct {
				IfGenerationMatch string `json:"ifGenerationMatch"`
			} `json:"objectPreconditions"`
		} `json:"sourceObjects"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxDescription)).Decode(&in); err != nil {
		(&problem{http.StatusBadRequest, "parseError", err.Error()}).write(w)
		return
	}
	if n := len(in.Sources); n < 1 || n > composeParts {
		(&problem{http.StatusBadRequest, "invalid", fmt.Sprintf("%d sources, the limit is %d", n, composeParts)}).write(w)
		return
	}
	var joined []byte
	for _, source := range in.Sources {
		o := object{bucket, source.Name}
		if want := source.Conditions.IfGenerationMatch; want != "" && want != strconv.FormatInt(s.generationOf(o), 10) {
			(&problem{http.StatusPreconditionFailed, "conditionNotMet", "a source has another generation"}).write(w)
			return
		}
		content, _, refused := s.read(o, source.Generation)
		if refused != nil {
			refused.write(w)
			return
		}
		joined = append(joined, content...)
	}
	forward(w, s.make(object{bucket, name}, r.URL.Query(), in.Destination, joined))
}

// rewrite copies an object. fake-gcs-server ignores the conditions.
func (s *Server) rewrite(w http.ResponseWriter, r *http.Request, from, to object) {
	query := r.URL.Query()
	if refused := checkCondition(query, "ifSourceGenerationMatch", s.generationOf(from)); refused != nil {
		refused.write(w)
		return
	}
	content, source, refused := s.read(from, query.Get("sourceGeneration"))
	if refused != nil {
		refused.write(w)
		return
	}
	description := map[string]any{}
	err := json.NewDecoder(io.LimitReader(r.Body, maxDescription)).Decode(&description)
	if err != nil && err != io.EOF {
		(&problem{http.StatusBadRequest, "parseError", err.Error()}).write(w)
		return
	}
	if len(description) == 0 { // without a resource, that of the source is copied
		for _, key := range []string{"contentType", "contentEncoding", "metadata"} {
			description[key] = source[key]
		}
	}
	answer := s.make(to, query, description, content)
	if answer.Code != http.StatusOK {
		forward(w, answer)
		return
	}
	size := strconv.Itoa(len(content))
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(map[string]any{ // to a client that may have gone
		"kind": "storage#rewriteResponse", "done": true, "totalBytesRewritten": size, "objectSize": size,
		"resource": json.RawMessage(answer.Body.Bytes()),
	})
}
