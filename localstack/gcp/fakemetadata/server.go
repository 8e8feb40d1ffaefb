// Package fakemetadata is a metadata server of one Compute Engine instance or Cloud Run
// service in this process, by Google's documentation: the instance's id, its project and
// account, notices of preemption and maintenance with long polls, access tokens, and
// identity tokens signed with a key of its own.
//
// Programs reach it by GCE_METADATA_HOST.
package fakemetadata

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Instance describes the machine that asks.
type Instance struct {
	ID      string // numeric. Example: "4520031799277581759"
	Name    string // an instance that was preempted comes back under the same name
	Zone    string // Example: "europe-west4-a"
	Project string // the project's id
	Number  string // the project's number
	Account string // the email of its service account
	// MachineType and Spot are its type and how it is bought; a type that is "" is not told.
	MachineType string // Example: "g2-standard-8"
	Spot        bool
	// Attributes are the values that a template or a group gave the instance.
	Attributes map[string]string
}

// Server is the metadata server. It is safe for concurrent use.
type Server struct {
	instance Instance
	signer   *Signer

	mu      sync.Mutex
	values  map[string]value // by path
	changed chan struct{}    // closed at the next change
	refused int              // requests without the header Metadata-Flavor
}

// value is a value with the number of its change, which is its ETag.
type value struct {
	content string
	change  int
}

const (
	// Paths of the metadata that announce the end of the machine.
	preempted   = "instance/preempted"
	maintenance = "instance/maintenance-event"

	// maxWait is the longest wait of a long poll without timeout_sec.
	maxWait = time.Hour
	// prefix begins the path of every request.
	prefix = "/computeMetadata/v1/"
)

// New returns the metadata server of an instance. It is a handler.
func New(instance Instance, signer *Signer) *Server {
	s := &Server{instance: instance, signer: signer, changed: make(chan struct{}), values: map[string]value{}}
	for path, content := range map[string]string{
		"instance/id":                             instance.ID,
		"instance/name":                           instance.Name,
		"instance/zone":                           "projects/" + instance.Number + "/zones/" + instance.Zone,
		"project/project-id":                      instance.Project,
		"project/numeric-project-id":              instance.Number,
		"instance/service-accounts/default/email": instance.Account,
		"universe/universe-domain":                "googleapis.com",
		preempted:                                 "FALSE",
		maintenance:                               "NONE",
	} {
		s.values[path] = value{content: content}
	}
	if instance.MachineType != "" {
		s.values["instance/machine-type"] = value{content: "projects/" + instance.Number + "/machineTypes/" +
			instance.MachineType}
		s.values["instance/scheduling/preemptible"] = value{content: strings.ToUpper(strconv.FormatBool(instance.Spot))}
	}
	for name, content := range instance.Attributes {
		s.values["instance/attributes/"+name] = value{content: content}
	}
	return s
}

// Start serves the metadata of an instance on a port of the loopback interface until end
// is called.
func Start(instance Instance, signer *Signer) (s *Server, host string, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	s = New(instance, signer)
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	return s, listener.Addr().String(), func() { _ = server.Close() }, nil
}

// Preempt announces that the instance is preempted.
func (s *Server) Preempt() { s.set(preempted, "TRUE") }

// Maintain announces maintenance: "TERMINATE_ON_HOST_MAINTENANCE",
// "MIGRATE_ON_HOST_MAINTENANCE", or "NONE" when it is over.
func (s *Server) Maintain(event string) { s.set(maintenance, event) }

func (s *Server) set(path, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[path] = value{content, s.values[path].change + 1}
	close(s.changed)
	s.changed = make(chan struct{})
}

// Remove makes the metadata lack a path.
func (s *Server) Remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, path)
}

// Refused returns how many requests were refused for the lack of their header.
func (s *Server) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// ServeHTTP answers a request; see http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Metadata-Flavor", "Google")
	path, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok {
		if r.URL.Path != "/" { // clients ask for the root to see whether a server is there
			http.NotFound(w, r)
		}
		return
	}
	if r.Header.Get("Metadata-Flavor") != "Google" {
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		http.Error(w, "the header Metadata-Flavor is missing", http.StatusForbidden)
		return
	}
	switch path {
	case "instance/service-accounts/default/token":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // to a client that may have gone
			"access_token": s.accessToken(), "expires_in": 3599, "token_type": "Bearer"})
	case "instance/service-accounts/default/identity":
		s.serveIdentity(w, r)
	default:
		s.serveValue(w, r, path)
	}
}

// accessToken returns an access token of the instance's account. Without a signer no
// emulator knows whose it is.
func (s *Server) accessToken() string {
	if s.signer != nil {
		if token, err := s.signer.AccessToken(s.instance.Account); err == nil {
			return token
		}
	}
	return accessPrefix + rand.Text()
}

// serveValue answers with a value, after its next change if the request asks for that.
func (s *Server) serveValue(w http.ResponseWriter, r *http.Request, path string) {
	query := r.URL.Query()
	limit := maxWait
	if seconds, err := strconv.Atoi(query.Get("timeout_sec")); err == nil {
		limit = time.Duration(seconds) * time.Second
	}
	timeout := time.After(limit)
	for {
		s.mu.Lock()
		now, ok := s.values[path]
		changed := s.changed
		s.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		if query.Get("wait_for_change") != "true" || etag(now) != query.Get("last_etag") {
			write(w, now)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-timeout:
			write(w, now)
			return
		case <-changed:
		}
	}
}

func etag(v value) string { return fmt.Sprintf("%016x", v.change+1) }

func write(w http.ResponseWriter, v value) {
	w.Header().Set("Content-Type", "application/text")
	w.Header().Set("ETag", etag(v))
	_, _ = w.Write([]byte(v.content)) // to a client that may have gone
}

// serveIdentity answers with an identity token for the audience. In the format "full" it
// names the instance, so that a machine can prove which one it is.
func (s *Server) serveIdentity(w http.ResponseWriter, r *http.Request) {
	audience := r.URL.Query().Get("audience")
	if audience == "" {
		http.Error(w, "non-empty audience parameter required", http.StatusBadRequest)
		return
	}
	claims := Claims{"aud": audience, "email": s.instance.Account, "email_verified": true, "azp": s.instance.Account,
		"sub": s.instance.Account}
	if r.URL.Query().Get("format") == "full" {
		claims["google"] = map[string]any{"compute_engine": map[string]any{
			"instance_id": s.instance.ID, "instance_name": s.instance.Name, "project_id": s.instance.Project,
			"project_number": s.instance.Number, "zone": s.instance.Zone,
		}}
	}
	token, err := s.signer.Sign(claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte(token)) // to a client that may have gone
}
