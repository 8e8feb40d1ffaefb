package prices_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/prices"
)

// counted is what `make cost` has counted of a run: all units, also those that workers ask for by time.
type counted struct {
	provider string
	shards   int
	workers  time.Duration // their time until the run's end, together
	units    map[string]float64
}

// measured are the counts of 2026-11-30. The time of functions is that of a machine that did other
// work, too.
var measured = []counted{
	{config.ProviderAWS, 257, 218 * time.Second, map[string]float64{prices.S3Puts: 285, prices.S3Gets: 547,
		prices.DynamoDBWrites: 602, prices.DynamoDBReads: 621, prices.SQSRequests: 484, prices.LambdaCalls: 35,
		prices.LambdaTime: 3.5}},
	{config.ProviderAWS, 257, 230 * time.Second, map[string]float64{prices.S3Puts: 285, prices.S3Gets: 548,
		prices.DynamoDBWrites: 610, prices.DynamoDBReads: 650, prices.SQSRequests: 491, prices.LambdaCalls: 39,
		prices.LambdaTime: 10.8}},
	{config.ProviderGCP, 68, 1372 * time.Second, map[string]float64{prices.StorageClassA: 103, prices.StorageClassB: 184,
		prices.FirestoreWrites: 356, prices.FirestoreReads: 802, prices.PubSubKB: 239, prices.CloudRunCalls: 75,
		prices.CloudRunCPU: 13.2, prices.CloudRunMemory: 15.4}},
	{config.ProviderGCP, 65, 676 * time.Second, map[string]float64{prices.StorageClassA: 87, prices.StorageClassB: 164,
		prices.FirestoreWrites: 272, prices.FirestoreReads: 606, prices.PubSubKB: 229, prices.CloudRunCalls: 72,
		prices.CloudRunCPU: 15.5, prices.CloudRunMemory: 16.5}},
	{config.ProviderGCP, 136, 3302 * time.Second, map[string]float64{prices.StorageClassA: 229, prices.StorageClassB: 452,
		prices.FirestoreWrites: 657, prices.FirestoreReads: 1538, prices.PubSubKB: 467, prices.CloudRunCalls: 145,
		prices.CloudRunCPU: 21.1, prices.CloudRunMemory: 26.0}},
}

// TestBillAgreesWithWhatWasCounted compares what summaries say of requests and functions with what
// was counted: the sum of a provider's runs within 10 %, each of them within 15 %.
func TestBillAgreesWithWhatWasCounted(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{config.ProviderAWS, config.ProviderGCP} {
		list, allBilled, all := prices.Of(provider), 0.0, 0.0
		check := func(what string, billed, want, apart float64) {
			if math.Abs(billed-want) > apart*want {
				t.Errorf("%s, %s: billed are $%.5f, counted $%.5f", provider, what, billed, want)
			}
		}
		for _, c := range measured {
			if c.provider != provider {
				continue
			}
			want := 0.0
			for name, n := range c.units {
				if list.Unit(name) == 0 {
					t.Errorf("%s has no price of %s", provider, name)
				}
				want += n * list.Unit(name)
			}
			functions, storage := list.ControlPlane(c.shards, c.workers.Microseconds())
			check(fmt.Sprintf("%d shards", c.shards), functions+storage, want, 0.15)
			allBilled, all = allBilled+functions+storage, all+want
		}
		check("all runs", allBilled, all, 0.10)
	}
}

// TestDefaultMachinesHavePrices asks for those that a deployment rents by default.
func TestDefaultMachinesHavePrices(t *testing.T) {
	t.Parallel()
	for provider, text := range map[string]string{
		config.ProviderAWS: "[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\n[cloud.s3]\nbucket = 'acme-prompts'\n",
		config.ProviderGCP: "[cloud]\nprovider = 'gcp'\nregion = 'us-central1'\nproject = 'acme-prompts'\n" +
			"[cloud.gcs]\nbucket = 'acme-prompts'\n",
	} {
		d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n"+text+
			"[[pool]]\nname = 'a'\nmodel = 'm'\n[[pool]]\nname = 'b'\nmodel = 'n'\nprice = 0.25\n"+
			"[[pool]]\nname = 'c'\nmodel = 'rollout/tiny'\nexecutor = 'train'\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, machine := range append(d.InstanceTypesOf("c"), d.Cloud.Fleet.InstanceTypes...) {
			of := cost.Kind{Type: machine, Class: cost.Spot}
			_, spot := prices.Machine(d, "a", of)
			_, list := prices.Machine(d, "a", cost.Kind{Type: machine, Class: cost.OnDemand})
			if kind, own := prices.Machine(d, "b", of); spot <= 0 || spot >= list || own != 0.25 || kind != of {
				t.Errorf("%s of %s: $%g spot, $%g else; with a price of its own $%g", machine, provider, spot, list, own)
			}
		}
	}
	if kind, usd := prices.Machine(config.DefaultDeployment(), "default", cost.Kind{}); kind.Key() != "" || usd != 0 {
		t.Errorf("a machine without a cloud is %q at $%g", kind.Key(), usd)
	}
}

func TestLeastPriceIsThatOfThePoolsCheapestMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		provider, pool string
		want           float64
	}{
		"spot": {config.ProviderAWS, `instance_types = ["g6.2xlarge", "g6.xlarge"]`, 0.8048 * 0.45},
		"at the list price": {config.ProviderAWS,
			"instance_types = [\"g6.xlarge\"]\nprovisioning = \"standard\"", 0.8048},
		"an unknown type": {config.ProviderAWS, `instance_types = ["g99.xlarge"]`, 0},
		"an own price":    {config.ProviderAWS, "instance_types = [\"g6.xlarge\"]\nprice = 0.25", 0.25},
		"flex-start": {config.ProviderGCP,
			"instance_types = [\"g2-standard-8\"]\nprovisioning = \"flex-start\"", 0.4268},
		"a spot machine without a GPU": {config.ProviderGCP, "instance_types = [\"n2-standard-8\"]", 0.08547},
		"tasks of Cloud Run": {config.ProviderGCP, `machines = "cloud-run"`,
			(0.000187 + 8*0.000018 + 32*0.000002) * 3600},
	} {
		at := map[string]string{config.ProviderAWS: "[cloud.s3]\nbucket = \"b-1\"\n",
			config.ProviderGCP: "[cloud.gcs]\nbucket = \"b-1\"\n"}[c.provider]
		head := map[string]string{config.ProviderAWS: "region = \"us-east-1\"\n",
			config.ProviderGCP: "region = \"us-central1\"\nproject = \"acme-ml\"\n"}[c.provider]
		d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n[cloud]\n"+
			"provider = \""+c.provider+"\"\n"+
			head+at+"[[pool]]\nname = \"a\"\nmodel = \"m\"\n"+c.pool+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := prices.Least(d, "a"); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: $%g an hour, want $%g", name, got, c.want)
		}
	}
}
