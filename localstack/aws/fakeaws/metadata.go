package fakeaws

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// metadata is the metadata service of an instance, of the second version: it
// answers nobody without a token.
type metadata struct {
	id     string
	server *httptest.Server

	mu          sync.Mutex
	takenAt     time.Time // when EC2 takes the instance back; zero is never
	recommended time.Time
}

// token is good for every instance: it is checked that one is sent.
const token = "a-token"

func newMetadata(id string) *metadata {
	m := &metadata{id: id}
	m.server = httptest.NewServer(m)
	return m
}

// announce says when the instance is taken back; what was said first holds.
func (m *metadata) announce(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.takenAt.IsZero() {
		m.takenAt = at
	}
}

func (m *metadata) recommend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recommended.IsZero() {
		m.recommended = time.Now()
	}
}

// ServeHTTP is the service.
func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		_, _ = io.WriteString(w, token)
		return
	}
	if r.Header.Get("X-Aws-Ec2-Metadata-Token") != token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	m.mu.Lock()
	taken, recommended := m.takenAt, m.recommended
	m.mu.Unlock()
	utc := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
	text := ""
	switch strings.TrimPrefix(r.URL.Path, "/latest/") {
	case "meta-data/instance-id":
		text = m.id
	case "meta-data/autoscaling/target-lifecycle-state":
		text = "InService"
	case "meta-data/instance-type":
		text = "g6.xlarge"
	case "meta-data/placement/region":
		text = Region
	case "meta-data/placement/availability-zone":
		text = Region + "a"
	case "dynamic/instance-identity/document":
		text = string(encode(map[string]string{"instanceId": m.id, "region": Region, "instanceType": "g6.xlarge", "availabilityZone": Region + "a"}))
	case "meta-data/spot/instance-action":
		if !taken.IsZero() {
			text = string(encode(map[string]string{"action": "terminate", "time": utc(taken)}))
		}
	case "meta-data/events/recommendations/rebalance":
		if !recommended.IsZero() {
			text = string(encode(map[string]string{"noticeTime": utc(recommended)}))
		}
	case "meta-data/events/maintenance/scheduled":
		text = "[]"
	}
	if text == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if json.Valid([]byte(text)) && text[0] != '"' {
		w.Header().Set("Content-Type", "application/json")
	}
	_, _ = io.WriteString(w, text)
}
