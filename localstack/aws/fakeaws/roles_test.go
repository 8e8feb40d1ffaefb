package fakeaws_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/iam"
)

// Functions and users are known by their access key, machines by their session. Other callers
// may do everything.
func TestCallersAreLimitedToTheirRoles(t *testing.T) {
	t.Parallel()
	template, err := os.ReadFile("../../../infra/aws/stack/testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	roles, err := iam.ReadTemplate([]byte(strings.ReplaceAll(string(template), "eu-central-1", fakeaws.Region)))
	if err != nil {
		t.Fatal(err)
	}
	emulator := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(emulator.Close)
	c, err := fakeaws.Open(fakeaws.Options{Backend: emulator.URL, Roles: &roles,
		Config: "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = \"acme\"\n[cloud.s3]\n" +
			"bucket = \"acme-batches\"\nprefix = \"team-a/\"\n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	const eventOn = `{"Entries":[{"Source":"rollout/x","DetailType":"x","Detail":"{}","EventBusName":`
	const put, work, prompts = `{"TableName":"acme","Item":{"p":{"S":"run/"},"k":{"S":"run/1"}}}`,
		"/acme-batches/team-a/work/r/1", "/acme-batches/team-a/prompts/x.jsonl"
	const reader, user = "acme-reader-" + fakeaws.Region, "acme-user-" + fakeaws.Region
	for _, r := range []struct {
		caller, session, method, path, target, body string
		header                                      string // If-None-Match
		status                                      int
	}{
		{"submit", "", http.MethodPost, "/", "DynamoDB_20120810.PutItem", put, "", http.StatusOK},
		{"plan", "", http.MethodPost, "/", "DynamoDB_20120810.PutItem", put, "", http.StatusBadRequest},
		{"worker", "acme-small", http.MethodPost, "/", "DynamoDB_20120810.PutItem", put, "", http.StatusBadRequest},
		{"user", "", http.MethodPost, "/", "DynamoDB_20120810.PutItem", put, "", http.StatusOK},
		{"worker", "acme-small", http.MethodPut, work, "", "x", "*", http.StatusOK},
		{"worker", "acme-small", http.MethodPut, work, "", "x", "", http.StatusForbidden},
		{"worker", "acme-small", http.MethodPut, prompts, "", "x", "*", http.StatusForbidden},
		{"plan", "", http.MethodPut, prompts, "", "x", "*", http.StatusForbidden},
		{"user", "", http.MethodPut, prompts, "", "x", "", http.StatusOK},
		{reader, "", http.MethodGet, prompts, "", "", "", http.StatusOK},
		{reader, "", http.MethodPut, prompts, "", "x", "", http.StatusForbidden},
		{user, "", http.MethodGet, prompts, "", "", "", http.StatusForbidden},
		{user, "", http.MethodPut, prompts, "", "x", "", http.StatusOK},
		{reader + "+" + user, "", http.MethodGet, prompts, "", "", "", http.StatusOK},
		{reader + "+" + user, "", http.MethodPut, prompts, "", "x", "", http.StatusOK},
		{reader + "+" + user, "", http.MethodPut, work, "", "x", "", http.StatusForbidden},
		{"worker", "acme-small", http.MethodPost, "/", "AmazonSQS.ReceiveMessage",
			`{"QueueUrl":"http://q/000000000000/acme-work-small"}`, "", http.StatusOK},
		{"worker", "acme-small", http.MethodPost, "/", "AmazonSQS.SendMessageBatch",
			`{"QueueUrl":"http://q/000000000000/acme-work-small"}`, "", http.StatusBadRequest},
		{"reclaim", "", http.MethodPost, "/", "AWSEvents.PutEvents", eventOn + `"acme-events"}]}`, "", http.StatusOK},
		{"reclaim", "", http.MethodPost, "/", "AWSEvents.PutEvents", eventOn + `"other"}]}`, "", http.StatusBadRequest},
		{"finalize", "", http.MethodPost, "/", "AWSEvents.PutEvents", eventOn + `"acme-events"}]}`, "",
			http.StatusBadRequest},
		{"worker", "acme-small", http.MethodPost, "/", "AWSEvents.PutEvents", eventOn + `"acme-events"}]}`, "",
			http.StatusBadRequest},
	} {
		request, err := http.NewRequestWithContext(t.Context(), r.method, c.URL+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization",
			"AWS4-HMAC-SHA256 Credential="+r.caller+"/20260101/us-east-1/x/aws4_request, Signature=x")
		for name, value := range map[string]string{"X-Amz-Security-Token": r.session, "X-Amz-Target": r.target,
			"If-None-Match": r.header} {
			if value != "" {
				request.Header.Set(name, value)
			}
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != r.status {
			t.Errorf("%s %s of %s%s by %s is answered with %d, want %d", r.target, r.method, r.path, r.body, r.caller,
				answer.StatusCode, r.status)
		}
	}
	if n := len(c.DeniedRequests()); n != 12 {
		t.Errorf("%d requests were denied, want 12: %v", n, c.DeniedRequests())
	}
	if got := c.AllowedActions("submit"); !slices.Equal(got, []string{"dynamodb:PutItem"}) {
		t.Errorf("submit was allowed %q", got)
	}
}
