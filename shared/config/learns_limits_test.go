package config

import "testing"

// A limit is learnt where one server answers all workers of a pool.
func TestLimitsAreLearntFromOneServerForAllWorkers(t *testing.T) {
	t.Parallel()
	engine := func(urls ...string) func(*Deployment) {
		return func(d *Deployment) { d.Engine = Engine{URLs: urls} }
	}
	for name, c := range map[string]struct {
		edit       func(*Deployment)
		perMachine bool
		want       bool
	}{
		"hosted":                          {engine("https://api.example.com/v1"), false, true},
		"hosted, from machines":           {engine("https://api.example.com/v1"), true, true},
		"on this machine":                 {engine("http://127.0.0.1:8000/v1"), false, true},
		"on each machine":                 {engine("http://127.0.0.1:8000/v1"), true, false},
		"on each machine by name":         {engine("http://localhost:8000/v1"), true, false},
		"two servers":                     {engine("http://a/v1", "http://b/v1"), false, false},
		"in the worker":                   {engine("mock"), false, false},
		"none":                            {engine(), false, false},
		"its own engine":                  {func(d *Deployment) { d.Pools[0].Engine = "own" }, false, true},
		"a training pool":                 {func(d *Deployment) { d.Pools[0].Executor = ExecutorTrain }, false, false},
		"told to ignore what servers say": {func(d *Deployment) { d.Pools[0].IgnoreServerLimits = true }, false, false},
	} {
		d := Deployment{Engine: Engine{URL: "https://api.example.com/v1"}, Pools: []Pool{{Name: "p"}},
			Engines: map[string]Engine{"own": {URL: "http://own/v1"}}}
		c.edit(&d)
		if got := d.LearnsLimits("p", c.perMachine); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
