package prices_test

import (
	"math"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/prices"
)

// TestControlPlaneAgreesWithCountedRequests compares what a run's summary says with the
// requests that `make cost` counted on 2026-11-30, of the work alone. The time of functions
// differs between counts: it is not to be too low.
func TestControlPlaneAgreesWithCountedRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider string
		shards   int
		counted  map[string]float64
	}{
		{config.ProviderAWS, 65, map[string]float64{prices.S3Puts: 80, prices.S3Gets: 150, prices.DynamoDBWrites: 152,
			prices.DynamoDBReads: 132, prices.SQSRequests: 133, prices.LambdaCalls: 14, prices.LambdaTime: 2.1}},
		{config.ProviderAWS, 257, map[string]float64{prices.S3Puts: 285, prices.S3Gets: 548, prices.DynamoDBWrites: 566,
			prices.DynamoDBReads: 597, prices.SQSRequests: 480, prices.LambdaCalls: 43, prices.LambdaTime: 21.2}},
		{config.ProviderGCP, 65, map[string]float64{prices.StorageClassA: 77, prices.StorageClassB: 149,
			prices.FirestoreWrites: 146, prices.FirestoreReads: 122, prices.PubSubKB: 196, prices.CloudRunCalls: 71,
			prices.CloudRunCPU: 9.1, prices.CloudRunMemory: 10.4}},
	} {
		list := prices.Of(c.provider)
		ofFunctions := map[string]bool{}
		for _, p := range list.Positions {
			ofFunctions[p.Name] = p.Function
		}
		var wantFunctions, wantStorage float64
		for name, n := range c.counted {
			if list.Unit(name) == 0 {
				t.Errorf("%s has no price of %s", c.provider, name)
			}
			if ofFunctions[name] {
				wantFunctions += n * list.Unit(name)
			} else {
				wantStorage += n * list.Unit(name)
			}
		}
		functions, storage := list.ControlPlane(c.shards, 0)
		if math.Abs(storage-wantStorage) > 0.1*wantStorage {
			t.Errorf("%s: a run of %d shards costs $%g of requests, counted are $%g", c.provider, c.shards, storage, wantStorage)
		}
		if functions < 0.9*wantFunctions || functions > 3*wantFunctions {
			t.Errorf("%s: a run of %d shards costs $%g of functions, counted are $%g", c.provider, c.shards, functions,
				wantFunctions)
		}
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
