package gcp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// project looks at the project of an installation for the doctor. Each check asks services
// that the installation itself does not need; where the account may not ask, or such a
// service is not enabled, the check is *cloud.Unseen.
type project struct {
	client *rest
	config Config
	at     config.Deployment
	clock  clock.Clock // this machine's
}

// probeLimit bounds each check.
const probeLimit = 20 * time.Second

// probes returns the checks in the order in which a new project fails.
func (p project) probes() []cloud.Probe {
	return []cloud.Probe{
		{Name: "credentials", Limit: probeLimit, Run: p.credentials},
		{Name: "clock", Limit: probeLimit, Run: p.compareClocks},
		{Name: "apis", Limit: probeLimit, Run: p.apis},
		{Name: "gpu_quota", Limit: probeLimit, Run: p.gpuQuota},
		{Name: "cpu_quota", Limit: probeLimit, Run: p.cpuQuota},
		{Name: "machine_types", Limit: probeLimit, Run: p.machineTypes},
		{Name: "org_policies", Limit: probeLimit, Run: p.policies},
		{Name: "silent_grants", Limit: probeLimit, Run: p.silentGrants},
		{Name: "notification", Limit: probeLimit, Run: p.notification},
	}
}

// get reads a resource of a service. An account that may not read it, and a service that
// is not enabled, are Unseen.
func (p project) get(ctx context.Context, address string, out any, what string) error {
	return p.seen(p.client.call(ctx, http.MethodGet, address, nil, out, what), what)
}

// seen turns a refusal into Unseen.
func (p project) seen(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case slices.Contains([]string{"SERVICE_DISABLED", "accessNotConfigured"}, reasonOf(err)):
		return &cloud.Unseen{Reason: "the project has not enabled the API to " + what}
	case fault.Is(err, fault.Denied) && isServiceError(err):
		return &cloud.Unseen{Reason: "this account may not " + what + "; an owner of the project may"}
	}
	return err
}

// isServiceError reports whether a service answered, as opposed to missing credentials.
func isServiceError(err error) bool {
	var own *credentialsError
	return !errors.As(err, &own)
}

func (p project) credentials(ctx context.Context) (string, error) {
	if _, err := p.config.Credentials.Token(ctx); err != nil {
		return "", err
	}
	return accountOf(p.config)
}

// compareClocks compares this machine's clock with that of the services, in the header of any answer.
func (p project) compareClocks(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, storageEndpoint(), nil)
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "the endpoint %s", storageEndpoint())
	}
	asked := p.clock.Now()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", &cloud.Unseen{Reason: "Cloud Storage can't be reached from here"}
	}
	answered := p.clock.Now()
	_ = answer.Body.Close() // the body is not used
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return "", &cloud.Unseen{Reason: "the answer of " + r.URL.Redacted() + " has no time"}
	}
	return cloud.CompareClocks(asked, answered, date, p.at.Health.SkewBudget.Std(), "Google Cloud")
}

// pools returns the names of the pools with GPUs on machines of that kind.
func (p project) pools(kind string) (names []string) {
	for _, pool := range p.at.InferPools() {
		if pool.Machines == kind || pool.Machines == "" && kind == config.MachinesGroup {
			names = append(names, pool.Name)
		}
	}
	return names
}

// neededAPIs returns the services that the installation and its deployment use.
func (p project) neededAPIs() []string {
	needed := []string{"artifactregistry", "cloudresourcemanager", "cloudscheduler", "compute", "firestore", "iam",
		"logging", "monitoring", "pubsub", "run", "secretmanager", "storage"}
	for i, name := range needed {
		needed[i] = name + ".googleapis.com"
	}
	slices.Sort(needed)
	return needed
}

func (p project) apis(ctx context.Context) (string, error) {
	needed := p.neededAPIs()
	parent := "projects/" + p.at.Cloud.Project
	query := ""
	for _, name := range needed {
		query += "&names=" + parent + "/services/" + name
	}
	var answer struct {
		Services []struct{ Name, State string }
	}
	err := p.get(ctx, "https://serviceusage.googleapis.com/v1/"+parent+"/services:batchGet?"+query[1:], &answer,
		"see which APIs are enabled")
	if err != nil {
		return "", err
	}
	var missing []string
	for _, name := range needed {
		enabled := false
		for _, s := range answer.Services {
			enabled = enabled || s.State == "ENABLED" && strings.HasSuffix(s.Name, "/"+name)
		}
		if !enabled {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return "", &fault.Error{Kind: fault.Denied,
			Err: fault.New(fault.Denied, "the project has not enabled %s", strings.Join(missing, ", ")),
			Remedy: "run gcloud services enable " + strings.Join(missing, " ") + " --project=" + p.at.Cloud.Project +
				", then wait some minutes"}
	}
	return plural(len(needed), "API") + " enabled", nil
}

// notification checks that the bucket tells the function submit of uploads.
func (p project) notification(ctx context.Context) (string, error) {
	bucket, topic := p.at.Cloud.GCS, p.at.Cloud.PubSub.Prefix+ObjectsTopic
	var answer struct {
		Items []struct {
			Topic  string
			Prefix string   `json:"object_name_prefix"`
			Events []string `json:"event_types"`
		}
	}
	err := p.get(ctx, storageEndpoint()+"/storage/v1/b/"+bucket.Bucket+"/notificationConfigs", &answer,
		"see the notifications of the bucket "+bucket.Bucket)
	if err != nil {
		return "", err
	}
	prompts := bucket.Prefix + record.PromptsPrefix
	for _, n := range answer.Items {
		created := len(n.Events) == 0 || slices.Contains(n.Events, "OBJECT_FINALIZE")
		if strings.HasSuffix(n.Topic, "/topics/"+topic) && created && strings.HasPrefix(prompts, n.Prefix) {
			return "uploads to " + prompts + " go to the topic " + topic, nil
		}
	}
	return "", &fault.Error{Kind: fault.NotFound,
		Err: fault.New(fault.NotFound, "the bucket %s tells the topic %s of no uploads to %s",
			bucket.Bucket, topic, prompts),
		Remedy: "deploy the stack again; until then uploads become runs within two hours"}
}
