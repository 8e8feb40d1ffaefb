package gcp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// iamPolicy says who has which roles on a resource.
type iamPolicy struct {
	Bindings []struct {
		Role    string
		Members []string
	}
}

func (i iamPolicy) grants(member string, roles ...string) bool {
	for _, b := range i.Bindings {
		if slices.Contains(roles, b.Role) && slices.Contains(b.Members, member) {
			return true
		}
	}
	return false
}

// silentGrant is a grant to an account of Google's whose lack no error tells.
type silentGrant struct {
	resource string // whose policy is read, as an address
	name     string // for people
	member   string
	roles    []string // one of them
	lack     string   // what happens without it
}

// silentGrants checks the grants whose lack shows by nothing but what does not happen.
func (p project) silentGrants(ctx context.Context) (string, error) {
	var described struct {
		Number string `json:"projectNumber"`
	}
	of := "https://cloudresourcemanager.googleapis.com/v1/projects/" + p.at.Cloud.Project
	if err := p.get(ctx, of, &described, "see the project's number"); err != nil {
		return "", err
	}
	everywhere, err := p.policy(ctx, of, http.MethodPost)
	if err != nil {
		return "", err
	}
	var lacking []string
	grants := p.neededGrants(described.Number)
	for _, g := range grants {
		if everywhere.grants(g.member, g.roles...) {
			continue
		}
		method := http.MethodGet
		if strings.HasPrefix(g.resource, "https://iam.") {
			method = http.MethodPost
		}
		own, err := p.policy(ctx, g.resource, method)
		if err != nil {
			return "", err
		}
		if !own.grants(g.member, g.roles...) {
			lacking = append(lacking, fmt.Sprintf("%s lacks %s on %s: %s", g.member, g.roles[0], g.name, g.lack))
		}
	}
	if lacking != nil {
		return "", &fault.Error{Kind: fault.Denied, Err: fault.New(fault.Denied, "%s", strings.Join(lacking, "; ")),
			Remedy: "deploy the stack again, which makes these grants"}
	}
	return plural(len(grants), "grant") + " to accounts of Google's", nil
}

// policy reads the policy of a resource.
func (p project) policy(ctx context.Context, resource, method string) (out iamPolicy, err error) {
	var in any
	if method == http.MethodPost {
		in = struct{}{}
	}
	err = p.seen(p.client.call(ctx, method, resource+":getIamPolicy", in, &out, "read who may use "+resource),
		"read who may use what (getIamPolicy)")
	return out, err
}

// neededGrants lists the grants of infra/gcp to accounts of Google's.
func (p project) neededGrants(number string) (out []silentGrant) {
	c := p.at.Cloud
	pubsub := "serviceAccount:service-" + number + "@gcp-sa-pubsub.iam.gserviceaccount.com"
	storage := "serviceAccount:service-" + number + "@gs-project-accounts.iam.gserviceaccount.com"
	at := func(kind, name string) string {
		return "https://pubsub.googleapis.com/v1/projects/" + c.Project + "/" + kind + "/" + c.PubSub.Prefix + name
	}
	topic := func(name, member, lack string) {
		out = append(out, silentGrant{at("topics", name), "the topic " + c.PubSub.Prefix + name, member,
			[]string{"roles/pubsub.publisher", "roles/pubsub.editor", "roles/pubsub.admin"}, lack})
	}
	source := func(name string) {
		out = append(out, silentGrant{at("subscriptions", name), "the subscription " + c.PubSub.Prefix + name, pubsub,
			[]string{"roles/pubsub.subscriber", "roles/pubsub.editor", "roles/pubsub.admin"},
			"dead letters stay in it for ever"})
	}
	topic(ObjectsTopic, storage, "uploads become no runs")
	const lost = "messages that always fail are tried for ever"
	dead := queue.DeadLetterQueue
	topic(dead(host.TaskQueue), pubsub, lost)
	for _, name := range []string{ObjectsTopic, host.SubmitFunction, host.PlanFunction, host.FinalizeFunction,
		MachinesTopic} {
		source(name)
	}
	queues := []string{host.CoordinateQueue}
	for _, pool := range p.at.Pools {
		queues = append(queues, host.WorkQueue(pool.Name), host.UrgentQueue(pool.Name))
	}
	for _, name := range queues {
		topic(dead(name), pubsub, lost)
		source(name)
	}
	return append(out, silentGrant{
		"https://iam.googleapis.com/v1/projects/" + c.Project + "/serviceAccounts/" + c.PubSub.PushAccount,
		"the account " + c.PubSub.PushAccount, pubsub,
		[]string{"roles/iam.serviceAccountTokenCreator", "roles/iam.serviceAccountOpenIdTokenCreator",
			"roles/pubsub.serviceAgent"}, "pushes come without a token, and functions refuse them"})
}
