package events_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"rollout/events"
)

func encode(t *testing.T, p events.Payload, m events.Meta) []byte {
	t.Helper()
	b, err := events.Encode(p, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWireFormIsStructuredCloudEvents(t *testing.T) {
	t.Parallel()
	got := encode(t, events.ControlChanged{Run: run, Sequence: 3}, meta())
	want := `{"specversion":"1.0","type":"rollout.control.changed.v1","id":"01JD2ZQ4T5W0M1X9YB7R3K8CVG",` +
		`"source":"rollout/test","subject":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","time":"2026-03-01T12:00:00.5Z","hops":2,` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","term":5,` +
		`"datacontenttype":"application/json","data":{"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","sequence":3}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFieldsOfLaterVersionsAreIgnored(t *testing.T) {
	t.Parallel()
	_, p, err := events.Decode([]byte(`{"specversion":"1.0","type":"rollout.control.changed.v1","id":"1","source":"s",
		"time":"2026-03-01T13:00:00+01:00","datacontenttype":"application/json; charset=utf-8","dataschema":"x",
		"colour":["blue"],"data":{"run":"` + run + `","sequence":3,"mood":{"a":[1]}}}`))
	if want := (events.ControlChanged{Run: run, Sequence: 3}); err != nil || p != want {
		t.Errorf("got %+v, %v; want %+v", p, err, want)
	}
}

func TestUnknownTypeHasAValidEnvelope(t *testing.T) {
	t.Parallel()
	v1 := string(encode(t, events.Finalize{Run: run}, meta()))
	b := strings.Replace(v1, "rollout.run.finalize.v1", "rollout.run.finalize.v2", 1)
	e, p, err := events.Decode([]byte(b))
	if !errors.Is(err, events.ErrUnknownType) {
		t.Errorf("error %v, want ErrUnknownType", err)
	}
	if want := (events.Unknown{Type: "rollout.run.finalize.v2"}); p != want || e.Meta != meta() {
		t.Errorf("got %+v in %+v", p, e)
	}
	if _, err := events.Encode(p, meta()); !errors.Is(err, events.ErrUnknownType) {
		t.Errorf("Encode: %v, want ErrUnknownType", err)
	}
}

func TestEncodeDerivesTheIDFromTheContent(t *testing.T) {
	t.Parallel()
	m := events.Meta{Source: "rollout/plan", Time: sent}
	id := func(p events.Payload, m events.Meta) string {
		e, _, err := events.Decode(encode(t, p, m))
		if err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	first := id(events.Finalize{Run: run}, m)
	later, hop := m, m
	later.Time = sent.Add(1)
	hop.Hops = 1
	if got := id(events.Finalize{Run: run}, m); got != first {
		t.Errorf("the same event has the ids %s and %s", first, got)
	}
	local := m
	local.Time = sent.In(time.FixedZone("", 3600))
	if got := id(events.Finalize{Run: run}, local); got != first {
		t.Errorf("the same time in another zone has the ids %s and %s", first, got)
	}
	for name, other := range map[string]string{"type": id(events.RunSubmitted{Run: run}, m),
		"time": id(events.Finalize{Run: run}, later), "hops": id(events.Finalize{Run: run}, hop)} {
		if other == first {
			t.Errorf("an event of another %s has the same id %s", name, first)
		}
	}
}

func TestNextEndsChainsAfterMaxHops(t *testing.T) {
	t.Parallel()
	m := events.Meta{Source: "rollout/coordinate", Time: sent, Traceparent: meta().Traceparent}
	for hop := 0; ; hop++ {
		e, _, err := events.Decode(encode(t, events.Wakeup{Run: run}, m))
		if err != nil {
			t.Fatal(err)
		}
		if e.Hops != hop || e.Traceparent != meta().Traceparent {
			t.Fatalf("hop %d: %+v", hop, e.Meta)
		}
		next, err := e.Next()
		if hop == events.MaxHops {
			if !errors.Is(err, events.ErrTooManyHops) {
				t.Errorf("after %d hops: %v, want ErrTooManyHops", hop, err)
			}
			return
		}
		if err != nil || next.ID != "" || next.Source != "" || !next.Time.IsZero() {
			t.Fatalf("hop %d: next is %+v, %v", hop, next, err)
		}
		m = next
		m.Source, m.Time = "rollout/coordinate", sent
	}
}

func TestDecodeRejects(t *testing.T) {
	t.Parallel()
	good := string(encode(t, events.Wakeup{Run: run, Reason: "why"}, meta()))
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	for _, c := range []struct {
		name, in string
		kind     error
		want     string
	}{
		{"nothing", "", events.ErrMalformed, "end of JSON"},
		{"no JSON", "<xml/>", events.ErrMalformed, "invalid character"},
		{"two events", good + good, events.ErrMalformed, "after top-level value"},
		{"a list", "[" + good + "]", events.ErrMalformed, "array"},
		{"not UTF-8", swap("why", "\xff"), events.ErrMalformed, "UTF-8"},
		{"too large", swap("why", strings.Repeat("x", events.MaxSize)), events.ErrTooLarge, "more than 65536"},
		{"too deep", swap(`"why"`, strings.Repeat("[", 20000)), events.ErrMalformed, "nested more than 16 deep"},
		{"other CloudEvents", swap(`"1.0"`, `"0.3"`), events.ErrMalformed, `specversion "0.3"`},
		{"no id", swap(meta().ID, ""), events.ErrMalformed, "id"},
		{"no source", swap("rollout/test", ""), events.ErrMalformed, "source"},
		{"no type", swap("rollout.run.ring.v1", ""), events.ErrMalformed, "type"},
		{"type of control characters", swap("rollout.run.ring.v1", `\u0000`), events.ErrMalformed, "type"},
		{"no time", swap(`"time":"2026-03-01T12:00:00.5Z",`, ""), events.ErrMalformed, "time is missing"},
		{"bad time", swap("2026-03-01T12", "yesterday"), events.ErrMalformed, "parsing time"},
		{"too many hops", swap(`"hops":2`, `"hops":13`), events.ErrTooManyHops, "13"},
		{"negative hops", swap(`"hops":2`, `"hops":-1`), events.ErrMalformed, "negative"},
		{"term of 32 bits", swap(`"term":5`, `"term":2147483648`), events.ErrMalformed, "31 bits"},
		{"bad trace", swap("00-0af7", "x y"), events.ErrMalformed, "traceparent"},
		{"content type is not JSON", swap("application/json", "text/xml"), events.ErrMalformed, "datacontenttype"},
		{"no data", swap(`,"data":{"run":"`+run+`","reason":"why"}`, ""), events.ErrMalformed, "data is missing"},
		{"null data", swap(`{"run":"`+run+`","reason":"why"}`, "null"), events.ErrMalformed, "not a run id"},
		{"long subject", swap(run, strings.Repeat("x", 1025)), events.ErrMalformed, "subject"},
		{"run is a path", swap(`"run":"`+run, `"run":"../../../../../../etc/pass`), events.ErrMalformed, "not a run id"},
		{"run in lower case", swap(`"run":"`+run, `"run":"`+strings.ToLower(run)), events.ErrMalformed, "not a run id"},
		{"run beyond 128 bits", swap(`"run":"0`, `"run":"8`), events.ErrMalformed, "not a run id"},
		{"reason is a number", swap(`"why"`, "1"), events.ErrMalformed, "reason"},
		{"long reason", swap("why", strings.Repeat("x", 513)), events.ErrMalformed, "reason has 513 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, p, err := events.Decode([]byte(c.in))
			if !errors.Is(err, c.kind) || p != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want %v with %q", p, err, c.kind, c.want)
			}
			if err != nil && len(err.Error()) > 512 {
				t.Errorf("the error repeats %d bytes of the message", len(err.Error()))
			}
		})
	}
}

func TestInvalidPayloadsAreRejected(t *testing.T) {
	t.Parallel()
	counts := func(c events.Counts) events.Payload { return events.ShardDone{Run: run, Counts: c} }
	many := map[string]int{}
	for i := range 65 {
		many[strings.Repeat("c", i+1)] = 1
	}
	for _, c := range []struct {
		want string
		p    events.Payload
	}{
		{"bucket", events.ObjectCreated{Key: "k", Version: "v"}},
		{"key", events.ObjectCreated{Bucket: "b", Version: "v"}},
		{"key", events.ObjectCreated{Bucket: "b", Key: "a\x00b", Version: "v"}},
		{"version", events.ObjectCreated{Bucket: "b", Key: "k"}},
		{"size -1 is negative", events.ObjectCreated{Bucket: "b", Key: "k", Version: "v", Size: -1}},
		{"limit -9223372036854775808 is negative", events.PlanRange{Run: run, Offset: 1<<63 - 1, Limit: -1 << 63}},
		{"length -1 is negative", events.PlanRange{Run: run, Offset: 2, Limit: 1}},
		{"pool", events.Work{Run: run}},
		{"pool", events.Work{Run: run, Pool: "a/b"}},
		{"row", events.Work{Run: run, Row: -1, Pool: "p"}},
		{"allowance -1 is negative", events.Work{Run: run, Pool: "p", Allowance: -1}},
		{"spent -1 is negative", events.ShardReleased{Run: run, Worker: "w", Allowance: 1, Spent: -1}},
		{"shard -1 is negative", events.ItemFailed{Run: run, Shard: -1}},
		{"shard", events.ShardLost{Run: run, Shard: -1}},
		{"worker", events.ShardReleased{Run: run}},
		{"worker", events.ShardDone{Run: run, Worker: "a b"}},
		{"digest", events.ShardDone{Run: run, Digest: "abc"}},
		{"ok", counts(events.Counts{OK: -1})},
		{"by_class", counts(events.Counts{ByClass: map[string]int{"a": -1}})},
		{"class", counts(events.Counts{ByClass: map[string]int{"": 1}})},
		{"65 classes", counts(events.Counts{ByClass: many})},
		{"run", events.Finalized{Phase: "completed"}},
		{"phase", events.Finalized{Run: run, Phase: "a\nb"}},
	} {
		_, err := events.Encode(c.p, meta())
		if !errors.Is(err, events.ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want ErrMalformed with %q", c.p, err, c.want)
		}
		data, _ := json.Marshal(c.p)
		wire, _ := json.Marshal(events.Envelope{SpecVersion: "1.0", Type: c.p.EventType(), Meta: meta(), Data: data})
		if _, _, err := events.Decode(wire); !errors.Is(err, events.ErrMalformed) {
			t.Errorf("%s: decoded with %v, want ErrMalformed", wire, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, p := range golden {
		b, err := events.Encode(p, meta())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, p, err := events.Decode(b)
		if err != nil {
			return
		}
		wire, err := events.Encode(p, e.Meta)
		if errors.Is(err, events.ErrTooLarge) {
			return // escapes can make a message longer
		}
		if err != nil {
			t.Fatalf("%+v was decoded and cannot be encoded: %v", p, err)
		}
		_, again, err := events.Decode(wire)
		if err != nil {
			t.Fatalf("%s was encoded and cannot be decoded: %v", wire, err)
		}
		if x, y := mustJSON(t, p), mustJSON(t, again); x != y {
			t.Errorf("%s is read back as %s", x, y)
		}
	})
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadmeListsEveryEvent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range events.Payloads() {
		if !strings.Contains(string(text), "\n| `"+string(p.EventType())+"` |") {
			t.Errorf("README.md has no row of %s", p.EventType())
		}
	}
}
