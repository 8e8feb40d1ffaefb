package iam

import (
	"slices"
	"strings"
	"testing"
)

const (
	plan   = "serviceAccount:rollout-plan@acme-ml.iam.gserviceaccount.com"
	bucket = "projects/_/buckets/b"
	topic  = "projects/acme-ml/topics/rollout-plan"
)

// sample has a grant of each kind.
func sample(t *testing.T) *Policy {
	t.Helper()
	p, err := New([]Grant{
		{"read", plan, "projects/acme-ml/roles/read", bucket,
			`resource.name.startsWith("projects/_/buckets/b/objects/work/") || ` +
				`resource.name == "projects/_/buckets/b/objects/x" || ` +
				`resource.name.startsWith("projects/_/buckets/b/objects/runs/") && resource.name.endsWith("/errors.jsonl")`},
		{"publish", plan, "roles/pubsub.publisher", topic, ""},
		{"documents", plan, "projects/acme-ml/roles/documents", "projects/acme-ml",
			`resource.name == "projects/acme-ml/databases/rollout"`},
	}, map[string][]string{
		"projects/acme-ml/roles/read":      {"storage.objects.get"},
		"projects/acme-ml/roles/documents": {"datastore.entities.get"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRequestIsAllowedByAGrantOnItsResource(t *testing.T) {
	t.Parallel()
	p := sample(t)
	for name, c := range map[string]struct {
		request Request
		want    bool
	}{
		"an object below the prefix": {Request{plan, "storage.objects.get", bucket + "/objects/work/r/1"}, true},
		"the object of the name":     {Request{plan, "storage.objects.get", bucket + "/objects/x"}, true},
		"an object of both ends": {
			Request{plan, "storage.objects.get", bucket + "/objects/runs/r/errors.jsonl"}, true},
		"an object of one end":          {Request{plan, "storage.objects.get", bucket + "/objects/y/errors.jsonl"}, false},
		"an object beside it":           {Request{plan, "storage.objects.get", bucket + "/objects/xy"}, false},
		"an object of another prefix":   {Request{plan, "storage.objects.get", bucket + "/objects/runs/r"}, false},
		"another bucket of that prefix": {Request{plan, "storage.objects.get", bucket + "2/objects/work/r"}, false},
		"another permission":            {Request{plan, "storage.objects.delete", bucket + "/objects/work/r"}, false},
		"another member":                {Request{"user:me@acme.com", "storage.objects.get", bucket + "/objects/x"}, false},
		"the topic":                     {Request{plan, "pubsub.topics.publish", topic}, true},
		"a topic with a longer name":    {Request{plan, "pubsub.topics.publish", topic + "-dead"}, false},
		"the database of the condition": {
			Request{plan, "datastore.entities.get", "projects/acme-ml/databases/rollout"}, true},
		"another database": {Request{plan, "datastore.entities.get", "projects/acme-ml/databases/other"}, false},
	} {
		if err := p.Check(c.request); (err == nil) != c.want {
			t.Errorf("%s: %v, want allowed: %v", name, err, c.want)
		}
	}
}

func TestWithdrawnGrantIsNamed(t *testing.T) {
	t.Parallel()
	p := sample(t)
	r := Request{plan, "pubsub.topics.publish", topic}
	p.Withdraw("publish")
	if err := p.Check(r); err == nil || err.Error() != plan+" does not have pubsub.topics.publish on "+topic {
		t.Errorf("the denial is %v", err)
	}
	denied := p.Denied()
	if len(denied) != 1 || !slices.Equal(p.Missing(denied[0]), []string{"publish"}) {
		t.Errorf("the denials %v lack the grant publish", denied)
	}
	p.Withdraw("")
	if err := p.Check(r); err != nil || len(p.Denied()) > 0 || !slices.Equal(p.Needed(), []string{"publish"}) {
		t.Errorf("after it was restored: %v, %v", err, p.Denied())
	}
}

func TestGrantsBesideWhichAnotherOneAllowsAreNotNeeded(t *testing.T) {
	t.Parallel()
	p, err := New([]Grant{{"one", plan, "roles/run.invoker", topic, ""},
		{"two", plan, "roles/run.invoker", topic, ""}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(Request{plan, "run.routes.invoke", topic}); err != nil || len(p.Needed()) > 0 {
		t.Errorf("%v, or a grant counts as needed", err)
	}
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]Grant{
		"the permissions of roles/editor":  {"a", plan, "roles/editor", topic, ""},
		`the condition "request.time < x"`: {"a", plan, "roles/run.invoker", topic, "request.time < x"},
		"has 13 logical operators": {"a", plan, "roles/run.invoker", topic,
			`resource.name == "x"` + strings.Repeat(` || resource.name == "x"`, 13)},
		`the condition "resource.name == "`: {"a", plan, "roles/run.invoker", topic, "resource.name == "},
	} {
		if _, err := New([]Grant{g}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", g, err, want)
		}
	}
}
