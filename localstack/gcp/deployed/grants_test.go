package deployed

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/localstack/gcp/iam"
	"rollout/localstack/scenarios"
)

// Flags of TestGrants.
var (
	grantSample = flag.Int("grants", 24, "`number` of grants that are withdrawn; 0 takes all")
	grantSeed   = flag.Uint64("grant-seed", 0, "`seed` of the sample; 0 takes the day")
)

// withPeople are the accounts of people in the plans of TestGrants.
const (
	viewer   = "viewer@acme.com"
	operator = "operator@acme.com"
)

// Without any one grant of the plan something fails, and the failure names the grant. Each
// scenario first succeeds with all grants, and shows which of them it needs. Then each grant
// is withdrawn, and a scenario that needs it must not succeed.
// Withdraw all grants with -args -grants 0, or repeat a sample with -grant-seed.
func TestGrants(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range []struct {
		name, secrets string
		scenarios     []scenario
	}{
		{"callers with a role", `"hf-token", "webhook-key"`, uses},
		{"callers with a token", `"hf-token", "api-token"`, []scenario{{"the API", callAPI}}},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(deployment, "[[pool]]", "secrets.allowlist = ["+c.secrets+"]\n[[pool]]", 1)
			if strings.Contains(c.secrets, scenarios.WebhookSecretName) {
				text += webhookConfig
			}
			f := newFixture(t, text, map[string]any{"viewers": []string{"user:" + viewer},
				"operators": []string{"user:" + operator}})
			f.engine = inferenceServer(t, 0)
			f.hook = &scenarios.Inbox{Secret: f.options.SecretText}
			f.serve(t, webhookHost, f.hook)
			f.hurry(t)
			needs := f.learnNeeds(t, c.scenarios)
			var todo []string
			for _, g := range f.Policy.Grants() {
				if needs[g.Address] == nil && !covered[g.Address] {
					t.Errorf("no scenario needs the grant %s", g.Address)
				}
				if needs[g.Address] != nil && !covered[g.Address] {
					covered[g.Address] = true
					todo = append(todo, g.Address)
				}
			}
			t.Logf("the scenarios need %d grants that none needed before", len(todo))
			for _, address := range sample(todo) {
				t.Run(address, func(t *testing.T) { f.withdraw(t, address, needs[address]) })
			}
		}) {
			return // the next plan would miss what this one covers
		}
	}
}

// The webhook of a deployment.
const (
	webhookHost   = "hooks.example.com"
	webhookConfig = "[notify]\nwebhook = \"https://" + webhookHost + "/events\"\nsecret = \"" +
		scenarios.WebhookSecretName + "\"\n"
)

// hurry ends the backoff of messages, again and again, until the test ends.
func (f *fixture) hurry(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		poll := time.NewTicker(100 * time.Millisecond)
		defer poll.Stop()
		for ctx.Err() == nil {
			select {
			case <-poll.C:
				f.PubSub.Hurry()
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// sample returns some of the addresses.
func sample(all []string) []string {
	if *grantSample == 0 || *grantSample >= len(all) {
		return all
	}
	seed := *grantSeed
	if seed == 0 {
		seed = uint64(time.Now().UTC().Unix() / int64((24 * time.Hour).Seconds()))
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:*grantSample]
}

// learnNeeds runs all scenarios with all grants. It returns those that need each grant:
// without it, a request would have been denied meanwhile.
func (f *fixture) learnNeeds(t *testing.T, scenarios []scenario) map[string][]scenario {
	t.Helper()
	f.Policy.Needed()
	needs := map[string][]scenario{}
	for _, s := range scenarios {
		start := time.Now()
		f.restart(t, "") // what programs remember would hide what they need
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := s.run(ctx, f)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v; denied: %v", s.name, err, f.Policy.Denied())
		}
		needed := f.Policy.Needed()
		for _, address := range needed {
			needs[address] = append(needs[address], s)
		}
		t.Logf("%s takes %v and needs %d grants", s.name, time.Since(start).Round(100*time.Millisecond), len(needed))
	}
	for _, d := range f.Policy.Denied() {
		t.Errorf("the plan lacks a grant: %v", d)
	}
	return needs
}

// stalledRounds is how often, after a denial, messages are delivered again and the timer is
// called, before a scenario that has not succeeded counts as failed.
const stalledRounds = 3

// withdraw runs scenarios without a grant until one of them does not succeed, and the
// denials name the grant. A scenario may succeed, because the request that needed the grant
// belonged to something that went on beside it.
func (f *fixture) withdraw(t *testing.T, address string, needing []scenario) {
	var succeeded []string
	for _, s := range needing {
		f.Policy.Withdraw(address)
		f.restart(t, address)
		err := f.stall(t.Context(), address, s)
		denied := f.denied(address)
		f.Policy.Withdraw("")
		switch {
		case err == nil:
			succeeded = append(succeeded, s.name)
			continue
		case len(denied) == 0:
			t.Errorf("%s fails, and no denial names the grant: %v", s.name, err)
		default:
			t.Logf("%s fails: %v", s.name, denied[0])
		}
		return
	}
	t.Errorf("without the grant succeed: %v", succeeded)
}

// stall runs a scenario until it ends, or until it counts as failed. It returns nil if the
// scenario succeeded.
func (f *fixture) stall(ctx context.Context, address string, s scenario) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, f) }()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for rounds := 0; rounds < stalledRounds; {
		select {
		case err := <-ended:
			return err
		case <-poll.C:
			if len(f.denied(address)) > 0 {
				rounds++
				_ = f.Tick(ctx) // it may be what fails
			}
		}
	}
	cancel()
	return <-ended
}

// denied returns the denials that the grant of the address would have prevented.
func (f *fixture) denied(address string) (out []iam.Denial) {
	for _, d := range f.Policy.Denied() {
		if slices.Contains(f.Policy.Missing(d), address) {
			out = append(out, d)
		}
	}
	return out
}

// restart starts the programs again that have the account of a grant, or all programs for
// "", so that they remember nothing.
func (f *fixture) restart(t *testing.T, address string) {
	t.Helper()
	member := ""
	for _, g := range f.Policy.Grants() {
		if g.Address == address {
			member = g.Member
		}
	}
	for _, s := range f.Services {
		if address == "" || memberOf(s.Account) == member {
			s.Kill()
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.leave()
	f.machine = f.worker(t, f.engine)
}

// until polls until ok returns true. It returns an error when ctx ends.
func until(ctx context.Context, what string, ok func() (bool, error)) error {
	poll := time.NewTicker(25 * time.Millisecond)
	defer poll.Stop()
	for {
		done, err := ok()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("this did not happen: %s", what)
		case err != nil || done:
			return err
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
}
