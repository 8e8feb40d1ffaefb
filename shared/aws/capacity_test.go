package aws

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"rollout/shared/capacity"
	"rollout/shared/capacity/capacitytest"
)

// fixed is a clock that always returns the same time.
type fixed time.Time

func (f fixed) Now() time.Time { return time.Time(f) }

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// metadata is a fake instance metadata service, according to EC2's documentation.
type metadata struct {
	mu     sync.Mutex
	paths  map[string]string
	token  int // the valid one
	tokens int // issued so far
	denied int // requests without a valid token
}

func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" {
		m.tokens++
		m.token = m.tokens
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		_, _ = fmt.Fprint(w, "token ", m.token)
		return
	}
	if r.Header.Get("X-Aws-Ec2-Metadata-Token") != fmt.Sprint("token ", m.token) {
		m.denied++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	content, ok := m.paths[strings.TrimPrefix(r.URL.Path, "/latest/meta-data/")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = fmt.Fprint(w, content)
}

func (m *metadata) set(path, content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paths[path] = content
}

// revoke invalidates the current token.
func (m *metadata) revoke() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens++
	m.token = m.tokens
}

// machine has one CPU, and the notices that the test puts into own.
type machine struct{ own chan capacity.Notice }

func (machine) Inventory(ctx context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: []capacity.GPU{}}, ctx.Err()
}

func (m machine) Notices(ctx context.Context) <-chan capacity.Notice {
	out := make(chan capacity.Notice)
	go func() {
		defer close(out)
		for {
			select {
			case n := <-m.own:
				out <- n
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func newInstance(t *testing.T, m *metadata, o InstanceOptions) (*Instance, machine) {
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	o.Poll, o.Clock = time.Millisecond, fixed(noon)
	o.SDK = []func(*imds.Options){func(i *imds.Options) { i.Endpoint = server.URL }}
	own := machine{make(chan capacity.Notice, 1)}
	return NewInstance(awssdk.Config{}, own, o), own
}

func newMetadata() *metadata { return &metadata{paths: map[string]string{}} }

func TestInstanceConforms(t *testing.T) {
	t.Parallel()
	capacitytest.Run(t, func(t *testing.T) capacitytest.Machine {
		m := newMetadata()
		source, _ := newInstance(t, m, InstanceOptions{})
		return capacitytest.Machine{Source: source, Notify: func(_ *testing.T, n capacity.Notice) {
			m.set(
				"spot/instance-action",
				fmt.Sprintf(`{"action":"terminate","time":%q}`, noon.Add(n.Lead).Format(time.RFC3339)),
			)
		}}
	})
}

func TestInstanceRenewsRevokedToken(t *testing.T) {
	t.Parallel()
	m := newMetadata()
	source, _ := newInstance(t, m, InstanceOptions{})
	notices := source.Notices(t.Context())
	m.set("events/recommendations/rebalance", `{"noticeTime":"2026-11-28T12:00:00Z"}`)
	if got, want := <-notices, (capacity.Notice{Reason: "rebalance", Lead: 2 * time.Minute, Advice: true}); got != want {
		t.Errorf("notice %+v, want %+v", got, want)
	}
	m.revoke()
	m.set("spot/instance-action", `{"action":"stop","time":"2026-11-28T12:00:03Z"}`)
	if got, want := <-notices, (capacity.Notice{Reason: "spot", Lead: 3 * time.Second}); got != want {
		t.Errorf("notice %+v, want %+v", got, want)
	}
	if m.denied == 0 {
		t.Error("the revoked token was not used")
	}
}

func TestInventoryHasInstanceIDOnceMetadataHasIt(t *testing.T) {
	t.Parallel()
	m := newMetadata()
	source, _ := newInstance(t, m, InstanceOptions{})
	for _, c := range []struct{ metadata, want string }{
		{"", ""},
		{"<html>", ""},
		{"i-0123456789abcdef0", "i-0123456789abcdef0"},
		{"i-00000000", "i-0123456789abcdef0"}, // the first id is cached
	} {
		if c.metadata != "" {
			m.set("instance-id", c.metadata)
		}
		got, err := source.Inventory(t.Context())
		if err != nil || got.Instance != c.want || got.CPUs != 1 {
			t.Errorf("metadata %q: Inventory = %+v, %v, want the id %q", c.metadata, got, err, c.want)
		}
	}
}

func TestNoticesIncludeThoseOfTheMachine(t *testing.T) {
	t.Parallel()
	source, own := newInstance(t, newMetadata(), InstanceOptions{})
	want := capacity.Notice{Reason: "file", Lead: time.Second}
	own.own <- want
	if got := <-source.Notices(t.Context()); got != want {
		t.Errorf("notice %+v, want %+v", got, want)
	}
}

// lines is a logger's output as a channel of lines; a full channel drops them.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func TestRefusedMetadataIsLoggedWithRemedy(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	logged := make(lines, 10)
	source := NewInstance(awssdk.Config{}, machine{}, InstanceOptions{
		Poll:   time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(logged, nil)),
		SDK: []func(*imds.Options){func(i *imds.Options) {
			i.Endpoint, i.Retryer = refusing.URL, awssdk.NopRetryer{}
		}},
	})
	source.Notices(t.Context())
	if line := <-logged; !strings.Contains(line, "hop limit of 2") {
		t.Errorf("log: %s", line)
	}
}

func TestNoticeKindsParseMetadata(t *testing.T) {
	t.Parallel()
	maintenance := func(state, at string) string {
		return fmt.Sprintf(`[{"NotBefore":%q,"Code":"system-reboot","Description":"x",`+
			`"EventId":"instance-event-1","NotAfter":%q,"State":%q}]`, at, at, state)
	}
	for name, c := range map[string]struct {
		kind    int
		content string
		want    string // notices, or "error"
	}{
		"spot notice":                    {0, `{"action":"terminate","time":"2026-11-28T12:01:59Z"}`, "spot 1m59s;"},
		"spot notice in the past":        {0, `{"action":"terminate","time":"2026-11-28T11:00:00Z"}`, "spot 0s;"},
		"spot notice and a slow clock":   {0, `{"action":"hibernate","time":"2026-11-28T13:00:00Z"}`, "spot 2m0s;"},
		"spot notice that is not JSON":   {0, `<html>`, "error"},
		"spot notice without a time":     {0, `{"action":"terminate"}`, "error"},
		"rebalance recommendation":       {1, `{"noticeTime":"2026-11-28T11:59:00Z"}`, "rebalance 2m0s;"},
		"rebalance without a time":       {1, `{}`, "error"},
		"maintenance soon":               {2, maintenance("active", "28 Nov 2026 12:08:00 GMT"), "maintenance 8m0s;"},
		"maintenance under way":          {2, maintenance("active", "28 Nov 2026 11:08:00 GMT"), "maintenance 0s;"},
		"maintenance in days":            {2, maintenance("active", "8 Dec 2026 11:08:00 GMT"), ""},
		"maintenance that is completed":  {2, maintenance("completed", "28 Nov 2026 12:08:00 GMT"), ""},
		"maintenance that is canceled":   {2, maintenance("canceled", "28 Nov 2026 12:08:00 GMT"), ""},
		"maintenance at an unknown time": {2, maintenance("active", "soon"), "error"},
		"empty list":                     {2, `[]`, ""},
		"empty response":                 {2, "", ""},
		"maintenance that is not a list": {2, `{"Code":`, "error"},
	} {
		found, err := noticeKinds[c.kind].parse([]byte(c.content), noon)
		got := ""
		for _, n := range found {
			got += fmt.Sprintf("%s %s;", n.Reason, n.Lead)
		}
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
