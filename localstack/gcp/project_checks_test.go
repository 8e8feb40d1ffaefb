package emulators

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/option"

	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakeproject"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/gcp"
)

// inProject reaches the services of a project without a network.
type inProject struct{ project *fakeproject.Project }

// RoundTrip answers the request; see http.RoundTripper.
func (p inProject) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer token")
	if strings.HasPrefix(r.URL.Host, "127.0.0.1") {
		return http.DefaultTransport.RoundTrip(r)
	}
	r.Host = r.URL.Host
	w := httptest.NewRecorder()
	p.project.ServeHTTP(w, r)
	return w.Result(), nil
}

// Each case is a healthy project but for one thing, and a check that says so.
func TestDoctorLooksAtTheProject(t *testing.T) {
	storage := StartStorage(t, fakegcs.Options{})
	t.Setenv(gcp.StorageEmulatorVariable, storage.Address)
	healthy := fakegcs.NotificationConfig{ID: "1", Prefix: "prompts/",
		Topic: "//pubsub.googleapis.com/projects/test-project/topics/rollout-objects", Events: []string{"OBJECT_FINALIZE"}}
	const unseen = "unseen: "
	const tasks = "[[pool]]\nname = 'task'\nmodel = 'n'\nmachines = 'cloud-run'\n"
	const training = "[[pool]]\nname = 'trainers'\nmodel = 'rollout/tiny'\nexecutor = 'train'\n"
	const groups = "[[pool]]\nname = 'small'\nmodel = 'm'\n"
	for name, c := range map[string]struct {
		pools  string
		change func(*fakeproject.Project)
		config string
		notify *fakegcs.NotificationConfig
		ahead  time.Duration // of the machine's clock
		check  string
		want   string
	}{
		"a clock that is right": {check: "clock", want: "within 2s of Google Cloud's"},
		"a clock behind": {check: "clock", ahead: -time.Minute,
			want: "behind Google Cloud's, and more than 2s (health.skew_budget): a worker here"},
		"a clock an hour ahead": {check: "clock", ahead: time.Hour,
			want: "ahead of Google Cloud's, and more than 2s (health.skew_budget): Google Cloud refuses"},
		"an API that is not enabled": {check: "apis", want: "has not enabled run.googleapis.com",
			change: func(p *fakeproject.Project) { p.Disabled = []string{"run.googleapis.com"} }},
		"Compute Engine is needed by groups": {check: "apis", want: "has not enabled compute.googleapis.com",
			change: func(p *fakeproject.Project) { p.Disabled = []string{"compute.googleapis.com"} }},
		"Compute Engine is needed for the network of tasks": {pools: tasks, check: "apis",
			want:   "has not enabled compute.googleapis.com",
			change: func(p *fakeproject.Project) { p.Disabled = []string{"compute.googleapis.com"} }},
		"no quota of GPUs at all": {check: "gpu_quota", want: "the quota GPUS_ALL_REGIONS of the project test-project is 0",
			change: func(p *fakeproject.Project) { p.AllGPUs = 0 }},
		"no quota in the region": {check: "gpu_quota",
			want:   "PREEMPTIBLE_NVIDIA_L4_GPUS of the project test-project is 0 in europe",
			change: func(p *fakeproject.Project) { p.Quotas = nil }},
		"no quota of machines at the list price": {check: "gpu_quota",
			pools: "[[pool]]\nname = 'list'\nmodel = 'm'\nprovisioning = 'standard'\n",
			want:  "the quota NVIDIA_L4_GPUS of the project test-project is 0 in europe"},
		"no quota for one of two pools": {check: "gpu_quota",
			pools: "[[pool]]\nname = 'spot'\nmodel = 'm'\n[[pool]]\nname = 'list'\nmodel = 'n'\nprovisioning = 'standard'\n",
			want:  "pool list: the quota NVIDIA_L4_GPUS of the project test-project is 0 in europe"},
		"no quota of Cloud Run": {check: "gpu_quota",
			want:   "pools task: the quota NvidiaL4GpuAllocNoZonalRedundancyPerProjectRegion of the project test-project is 0",
			change: func(p *fakeproject.Project) { p.CloudRunGPUs = 0 }},
		"tasks need no quota of Compute Engine": {pools: tasks, check: "gpu_quota", want: "3 L4 of Cloud Run in europe-west4",
			change: func(p *fakeproject.Project) { p.AllGPUs = 0 }},
		"quotas that can't be seen": {check: "gpu_quota", want: unseen + "this account may not see the quotas of the project",
			change: func(p *fakeproject.Project) { p.Denied = []string{"compute.googleapis.com"} }},
		"a service of quotas that is not enabled": {pools: tasks, check: "gpu_quota",
			want:   unseen + "the project has not enabled the API to see the quotas of Cloud Run",
			change: func(p *fakeproject.Project) { p.Disabled = []string{"cloudquotas.googleapis.com"} }},
		"processors for a training": {pools: training, check: "cpu_quota", want: "N2_CPUS 24, C2_CPUS 8"},
		"a training at the list price": {pools: training + "provisioning = 'standard'\n", check: "cpu_quota",
			want:   "N2_CPUS 24, C2_CPUS 8",
			change: func(p *fakeproject.Project) { p.Quotas["PREEMPTIBLE_CPUS"] = 4 }},
		"processors of spot machines alone": {pools: training, check: "cpu_quota", want: "PREEMPTIBLE_CPUS 16",
			change: func(p *fakeproject.Project) { p.Quotas = map[string]float64{"PREEMPTIBLE_CPUS": 16} }},
		"too few processors of spot machines": {pools: training, check: "cpu_quota",
			want: "pool trainers: no machine fits into the quotas of the project test-project in europe-west4: " +
				"n2-standard-8 takes 8 of PREEMPTIBLE_CPUS, which is 4; n2d-standard-8 takes 8 of PREEMPTIBLE_CPUS, which is 4; ",
			change: func(p *fakeproject.Project) { p.Quotas["PREEMPTIBLE_CPUS"] = 4 }},
		"no processors of a series": {pools: training + "instance_types = ['n2d-standard-16', 'c2-standard-30']\n",
			check: "cpu_quota",
			want:  "n2d-standard-16 takes 16 of N2D_CPUS, which is 0; c2-standard-30 takes 30 of C2_CPUS, which is 8"},
		"too few processors in all regions": {pools: training, check: "cpu_quota",
			want:   "n2-standard-8 takes 8 of CPUS_ALL_REGIONS, which is 4; n2d-standard-8 takes 8 of N2D_CPUS, which is 0",
			change: func(p *fakeproject.Project) { p.AllCPUs = 4 }},
		"a series whose quota is not listed": {pools: training + "instance_types = ['n4-standard-8']\n", check: "cpu_quota",
			want: "CPUS_ALL_REGIONS 32"},
		"a type without any listed quota": {pools: training + "instance_types = ['n4-standard-8']\n", check: "cpu_quota",
			want:   "Compute Engine does not list the quotas of the pools' types",
			change: func(p *fakeproject.Project) { p.AllCPUs = 0 }},
		"a series whose quota is not listed, and too few in all regions": {
			pools: training + "instance_types = ['n4-standard-8']\n", check: "cpu_quota",
			want:   "n4-standard-8 takes 8 of CPUS_ALL_REGIONS, which is 4",
			change: func(p *fakeproject.Project) { p.AllCPUs = 4 }},
		"processors that can't be seen": {pools: training, check: "cpu_quota", want: unseen + "this account may not see",
			change: func(p *fakeproject.Project) { p.Denied = []string{"compute.googleapis.com"} }},
		"no training": {check: "cpu_quota", want: "no pool trains"},
		"a type in no zone": {check: "machine_types", want: "g2-standard-8 in a, b; a2-highgpu-1g in no zone of",
			config: "fleet.instance_types = ['g2-standard-8', 'a2-highgpu-1g']\n"},
		"a pool without any machine": {check: "machine_types",
			pools: groups + "[[pool]]\nname = 'big'\nmodel = 'n'\ninstance_types = ['a2-highgpu-1g']\n",
			want:  "pool big: no zone of europe-west4 has machines a2-highgpu-1g"},
		"a policy against addresses": {check: "org_policies",
			want:   "compute.vmExternalIpAccess: machines get no external address",
			change: func(p *fakeproject.Project) { p.Policies["compute.vmExternalIpAccess"] = `[{"denyAll":true}]` }},
		"machines that train have addresses too": {pools: training, check: "org_policies",
			want:   "compute.vmExternalIpAccess: machines get no external address",
			change: func(p *fakeproject.Project) { p.Policies["compute.vmExternalIpAccess"] = `[{"denyAll":true}]` }},
		"tasks have no addresses": {pools: tasks, check: "org_policies", want: "none refuses",
			change: func(p *fakeproject.Project) { p.Policies["compute.vmExternalIpAccess"] = `[{"denyAll":true}]` }},
		"a policy against the region": {check: "org_policies", want: "gcp.resourceLocations: resources in the region",
			change: func(p *fakeproject.Project) {
				p.Policies["gcp.resourceLocations"] = `[{"values":{"allowedValues":["in:us-locations","europe-west1"]}}]`
			}},
		"a policy against the API's token": {check: "org_policies", want: "run.managed.requireInvokerIam",
			config: "secrets.allowlist = ['api-token']\n",
			change: func(p *fakeproject.Project) { p.Policies["run.managed.requireInvokerIam"] = `[{"enforce":true}]` }},
		"policies that can't be seen": {check: "org_policies", want: unseen + "this account may not see the organisation's",
			change: func(p *fakeproject.Project) { p.Denied = []string{"orgpolicy.googleapis.com"} }},
		"no publisher of dead letters": {check: "silent_grants",
			want:   "lacks roles/pubsub.publisher on the topic rollout-work-small-dead: messages that always fail",
			change: func(p *fakeproject.Project) { delete(p.Grants, "topics/rollout-work-small-dead") }},
		"no remover of dead letters": {check: "silent_grants",
			want:   "lacks roles/pubsub.subscriber on the subscription rollout-plan: dead letters stay",
			change: func(p *fakeproject.Project) { delete(p.Grants, "subscriptions/rollout-plan") }},
		"no publisher of notifications": {check: "silent_grants", want: "uploads become no runs",
			change: func(p *fakeproject.Project) { delete(p.Grants, "topics/rollout-objects") }},
		"no maker of tokens": {check: "silent_grants", want: "pushes come without a token",
			change: func(p *fakeproject.Project) {
				delete(p.Grants, "serviceAccounts/rollout-push@test-project.iam.gserviceaccount.com")
			}},
		"grants of the whole project": {check: "silent_grants", want: "18 grants",
			change: func(p *fakeproject.Project) {
				delete(p.Grants, "topics/rollout-work-small-dead")
				p.Grants["projects/test-project"] = map[string][]string{"roles/pubsub.publisher": {
					"serviceAccount:service-27@gcp-sa-pubsub.iam.gserviceaccount.com"}}
			}},
		"grants that can't be seen": {check: "silent_grants", want: unseen + "this account may not see the project's number",
			change: func(p *fakeproject.Project) { p.Denied = []string{"cloudresourcemanager.googleapis.com"} }},
		"no notification": {check: "notification", want: "tells the topic rollout-objects of no uploads to prompts/",
			notify: &fakegcs.NotificationConfig{ID: "1", Topic: healthy.Topic, Prefix: "other/"}},
		"a notification to another topic": {check: "notification", want: "tells the topic rollout-objects of no uploads",
			notify: &fakegcs.NotificationConfig{ID: "1", Topic: healthy.Topic + "-2"}},
		"a notification of everything": {check: "notification", want: "uploads to prompts/ go to the topic",
			notify: &fakegcs.NotificationConfig{ID: "1", Topic: healthy.Topic}},
	} {
		t.Run(name, func(t *testing.T) {
			project := healthyProject()
			project.Policies = maps.Clone(project.Policies)
			if c.change != nil {
				c.change(project)
			}
			if c.pools == "" {
				c.pools = groups + tasks
			}
			if c.notify == nil {
				c.notify = &healthy
			}
			storage.SetNotifications(storage.Bucket, *c.notify)
			d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n[cloud]\nprovider = 'gcp'\n"+
				"project = 'test-project'\nregion = 'europe-west4'\n"+c.config+"gcs.bucket = '"+storage.Bucket+"'\n"+c.pools))
			if err != nil {
				t.Fatal(err)
			}
			own := cloud.Options{Clock: clock.Skewed{Offset: c.ahead}, UseServiceClock: true} // as a command opens it
			s, err := gcp.OpenStack(t.Context(), d, gcp.StackOptions{Options: own, Services: []option.ClientOption{
				option.WithHTTPClient(&http.Client{Transport: inProject{project}})}})
			if err != nil {
				t.Fatal(err)
			}
			before := s.Diagnostics(nil).Before
			i := slices.IndexFunc(before, func(p cloud.Probe) bool { return p.Name == c.check })
			found, err := before[i].Run(t.Context())
			var u *cloud.Unseen
			switch {
			case errors.As(err, &u):
				found = unseen + u.Reason
			case err != nil:
				found = err.Error()
			}
			if !strings.Contains(found, c.want) {
				t.Errorf("the check %s says %q, want %q", c.check, found, c.want)
			}
		})
	}
}
