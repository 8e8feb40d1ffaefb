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

// metadata is the metadata service of an instance (IMDSv2). It requires a token.
type metadata struct {
	id     string
	server *httptest.Server

	mu          sync.Mutex
	endsAt      time.Time // when EC2 ends the instance; zero is never
	recommended time.Time
}

// token is valid for every instance.
const token = "a-token"

func newMetadata(id string) *metadata {
	m := &metadata{id: id}
	m.server = httptest.NewServer(m)
	return m
}

// announce sets when EC2 ends the instance. The first call counts.
func (m *metadata) announce(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endsAt.IsZero() {
		m.endsAt = at
	}
}

func (m *metadata) recommend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recommended.IsZero() {
		m.recommended = time.Now()
	}
}

// ServeHTTP implements http.Handler.
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
	endsAt, recommended := m.endsAt, m.recommended
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
	case "meta-data/instance-life-cycle":
		text = "spot"
	case "meta-data/placement/region":
		text = Region
	case "meta-data/placement/availability-zone":
		text = Region + "a"
	case "dynamic/instance-identity/document":
		text = string(encode(map[string]string{"instanceId": m.id, "region": Region, "instanceType": "g6.xlarge",
			"availabilityZone": Region + "a"}))
	case "meta-data/spot/instance-action":
		if !endsAt.IsZero() {
			text = string(encode(map[string]string{"action": "terminate", "time": utc(endsAt)}))
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
