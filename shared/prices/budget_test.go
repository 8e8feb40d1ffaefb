package prices_test

import (
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/prices"
)

func TestBudgetInDollarsNeedsAPrice(t *testing.T) {
	t.Parallel()
	const (
		pool = "[[pool]]\nname = 'a'\nmodel = 'm'\n"
		aws  = "[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\n[cloud.s3]\nbucket = 'acme-prompts'\n"
		gcp  = "[cloud]\nprovider = 'gcp'\nregion = 'us-central1'\nproject = 'acme-prompts'\n" +
			"[cloud.gcs]\nbucket = 'acme-prompts'\n"
	)
	for name, c := range map[string]struct{ config, refused string }{
		"a machine of one's own":     {pool, "its machines are your own"},
		"with a price":               {pool + "price = 0.25\n", ""},
		"a hosted model":             {"[engine]\nurl = 'https://api.example.com/v1'\ncompletion_price = 2.5\n" + pool, ""},
		"a hosted model, free":       {"[engine]\nurl = 'https://api.example.com/v1'\n" + pool, "names no price of tokens"},
		"rented machines":            {aws + pool, ""},
		"of a type without a price":  {aws + pool + "instance_types = ['g6.xlarge', 'x99.huge']\n", "x99.huge"},
		"of that type, with a price": {aws + pool + "instance_types = ['x99.huge']\nprice = 3.0\n", ""},
		"of Google Cloud":            {gcp + pool, ""},
	} {
		d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n"+c.config))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = prices.CheckBudget(d, config.Limits{Dollars: 12.5}, []string{"a"})
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.refused != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.refused) ||
			!strings.Contains(err.Error(), "pool a")):
			t.Errorf("%s: %v, want one that says %q", name, err, c.refused)
		}
		if err := prices.CheckBudget(d, config.Limits{Tokens: 5}, []string{"a"}); err != nil {
			t.Errorf("%s, without a budget in dollars: %v", name, err)
		}
	}
}
