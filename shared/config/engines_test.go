package config

import "testing"

func TestPoolsGetTheEngineThatTheyName(t *testing.T) {
	t.Parallel()
	d, err := ParseDeployment("d.toml", []byte(`schema_version = 1
[engine]
url = "http://a/v1"
[engines.b]
urls = ["http://b/v1", "http://c/v1"]
in_flight = 3
ready = "/readyz"
stream = "never"
omit = ["seed"]
[[pool]]
name = "one"
model = "m"
[[pool]]
name = "two"
model = "n"
engine = "b"
[worker]
in_flight = 7
`))
	if err != nil {
		t.Fatal(err)
	}
	for pool, want := range map[string]struct {
		servers, ready string
		stream         string
		inFlight, omit int
	}{
		"one": {"http://a/v1", "", "", 7, 0},
		"two": {"http://b/v1, http://c/v1", "/readyz", "never", 3, 1},
	} {
		got := d.ForPool(pool)
		again := got.ForPool(pool)
		if again.Worker.InFlight != got.Worker.InFlight || again.Engine.String() != got.Engine.String() {
			t.Errorf("%s: asking twice gives %v", pool, again.Engine)
		}
		if got.Engine.String() != want.servers || got.Engine.Ready != want.ready ||
			got.Engine.Stream != want.stream ||
			got.Worker.InFlight != want.inFlight ||
			len(got.Engine.Omit) != want.omit {
			t.Errorf("%s has the engine %+v and %d in flight, want %+v", pool, got.Engine, got.Worker.InFlight, want)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", pool, err)
		}
	}
	if d.Pools[1].Engine != "b" || d.Worker.InFlight != 7 {
		t.Error("the deployment was changed")
	}
}
