package machine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLogEventsAreTheLastLines(t *testing.T) {
	t.Parallel()
	log := strings.Repeat("old\n", 600) + "\n  \nValueError: \xff bad\n" + strings.Repeat("x", 5000) + "\nit left"
	at := time.UnixMilli(1764500000123)
	events := logEvents(log, at)
	n := len(events)
	if n != maxEvents || events[n-1].Message != "it left" || events[n-3].Message != "ValueError: ? bad" ||
		len(events[n-2].Message) > maxEventBytes || events[0].Timestamp != 1764500000123 {
		t.Errorf("%d events, the last are %+v", n, events[n-3:])
	}
	if b, err := json.Marshal(logEvents("\n", at)); err != nil || string(b) != "[]" {
		t.Errorf("of an empty log: %s, %v", b, err)
	}
}

func TestHubSecretIsNamedOnlyIfTheConfigAllowsIt(t *testing.T) {
	t.Parallel()
	const pool = head + "model = 'org/model'\n"
	allowed := strings.Replace(pool, "[[pool]]", "[cloud.secrets]\nallowlist = ['hf-token']\n[[pool]]", 1)
	for config, want := range map[string]string{pool: "", allowed: "/hf-token\n"} {
		got, err := call(t, config, "", "hub-secret", "--pool", "small")
		if err != nil || !strings.HasSuffix(got, want) || want == "" && got != "" {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}
