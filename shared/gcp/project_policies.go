package gcp

import (
	"context"
	"errors"
	"slices"
	"strings"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/listen"
)

// asUnseen reports whether err says that a check can't be made, and sets u to it.
func asUnseen(err error, u **cloud.Unseen) bool { return errors.As(err, u) }

// orgPolicy is the effective policy of a constraint of the organisation.
type orgPolicy struct {
	Spec struct {
		Rules []struct {
			DenyAll bool `json:"denyAll"`
			Enforce bool
			Values  struct {
				Allowed []string `json:"allowedValues"`
				Denied  []string `json:"deniedValues"`
			}
		}
	}
}

// refusing is a policy that refuses a part of a deployment.
type refusing struct {
	constraint string
	matters    func(config.Deployment) bool // nil: always
	refuses    func(orgPolicy, config.Deployment) bool
	effect     string // what fails
	remedy     string
}

func enforced(o orgPolicy, _ config.Deployment) bool {
	for _, r := range o.Spec.Rules {
		if r.Enforce {
			return true
		}
	}
	return false
}

func deniesAll(o orgPolicy, _ config.Deployment) bool {
	for _, r := range o.Spec.Rules {
		if r.DenyAll {
			return true
		}
	}
	return false
}

// excludesRegion reports whether a policy of locations denies the region, or allows values
// none of which can be the region. A group of locations, such as in:us-locations, is taken
// to have it if it names the region's continent.
func excludesRegion(o orgPolicy, d config.Deployment) bool {
	continent, _, _ := strings.Cut(d.Cloud.Region, "-")
	hasRegion := func(v string) bool {
		return v == d.Cloud.Region || v == "in:"+d.Cloud.Region+"-locations" || v == "in:"+continent+"-locations" ||
			continent == "europe" && v == "in:eu-locations"
	}
	var allowed []string
	for _, r := range o.Spec.Rules {
		if r.DenyAll || slices.ContainsFunc(r.Values.Denied, hasRegion) {
			return true
		}
		allowed = append(allowed, r.Values.Allowed...)
	}
	return len(allowed) > 0 && !slices.ContainsFunc(allowed, hasRegion)
}

// hasGroups reports whether a pool has machines of Compute Engine, to answer prompts or to train.
func hasGroups(d config.Deployment) bool { return len(d.GroupTypes()) > 0 }

func hasToken(d config.Deployment) bool { return slices.Contains(d.Secrets, listen.TokenSecret) }

// refusals are the policies that refuse what infra/gcp makes.
var refusals = []refusing{
	{"compute.vmExternalIpAccess", hasGroups, deniesAll, "machines get no external address",
		"deploy with -var external_addresses=false, with the engine image and the model in Google Cloud"},
	{"compute.disableSerialPortLogging", hasGroups, enforced, "machines whose boot log goes to Cloud Logging are refused",
		"ask for an exception for the project"},
	{"gcp.resourceLocations", nil, excludesRegion, "resources in the region of the config are refused",
		"choose a region that the policy allows"},
	{"iam.disableServiceAccountCreation", nil, enforced, "the functions' service accounts are refused",
		"ask for an exception for the project"},
	{"run.managed.requireInvokerIam", hasToken, enforced, "an API that asks for the token itself is refused",
		"remove api-token from the allowlist: callers then need the role roles/run.invoker"},
}

// policies checks that no policy of the organisation refuses a part of the deployment.
func (p project) policies(ctx context.Context) (string, error) {
	asked := 0
	var problems, remedies []string
	for _, r := range refusals {
		if r.matters != nil && !r.matters(p.at) {
			continue
		}
		var policy orgPolicy
		err := p.get(ctx, "https://orgpolicy.googleapis.com/v2/projects/"+p.at.Cloud.Project+"/policies/"+r.constraint+
			":getEffectivePolicy", &policy, "see the organisation's policies (gcloud services enable orgpolicy.googleapis.com)")
		if fault.Is(err, fault.NotFound) { // the constraint does not exist here
			continue
		}
		if err != nil {
			return "", err
		}
		asked++
		if r.refuses(policy, p.at) {
			problems = append(problems, r.constraint+": "+r.effect)
			remedies = append(remedies, r.remedy)
		}
	}
	if problems != nil {
		return "", &fault.Error{Kind: fault.Denied,
			Err:    fault.New(fault.Denied, "%s", strings.Join(problems, "; ")),
			Remedy: strings.Join(remedies, "; ")}
	}
	return plural(asked, "constraint") + " of the organisation, none refuses", nil
}
