package deployed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/gcp/iam"
	"rollout/localstack/gcp/planned"
)

// makeResources makes the buckets and their objects, the secrets and the topics.
func (in *Installation) makeResources(t testing.TB) {
	t.Helper()
	for _, b := range in.Plan.Of("google_storage_bucket") {
		in.Storage.MakeBucket(b.Values.Text("name"), b.Values.Block("versioning").Is("enabled"))
	}
	for _, o := range in.Plan.Of("google_storage_bucket_object") {
		v := o.Values
		if err := in.upload(t.Context(), v.Text("bucket"), v.Text("name"), v.Text("content")); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range in.Plan.Of("google_secret_manager_secret") {
		in.Secrets.Set(in.project, s.Values.Text("secret_id"), []byte(in.options.SecretText))
	}
	for _, topic := range in.Plan.Of("google_pubsub_topic") {
		name := "projects/" + in.project + "/topics/" + topic.Values.Text("name")
		if _, err := in.PubSub.CreateTopic(t.Context(), &pb.Topic{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
}

// upload makes an object.
func (in *Installation) upload(ctx context.Context, bucket, name, content string) error {
	const boundary = "part"
	body := "--" + boundary + "\r\nContent-Type: application/json\r\n\r\n{}\r\n--" + boundary +
		"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + "\r\n--" + boundary + "--\r\n"
	at := in.StorageAddress + "/upload/storage/v1/b/" + bucket + "/o?uploadType=multipart&name=" + name
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "multipart/related; boundary="+boundary)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("make the object %s: %s", name, response.Status)
	}
	return nil
}

// subscribe makes the subscriptions, whose pushes begin at once.
func (in *Installation) subscribe(t testing.TB) {
	t.Helper()
	for _, s := range in.Plan.Of("google_pubsub_subscription") {
		made, err := subscription(in.project, s.Values)
		if err == nil {
			_, err = in.PubSub.CreateSubscription(t.Context(), made)
		}
		if err != nil {
			t.Fatalf("%s: %v", s.Address, err)
		}
	}
}

// subscription returns a subscription as it is planned.
func subscription(project string, v planned.Object) (*pb.Subscription, error) {
	out := &pb.Subscription{Name: "projects/" + project + "/subscriptions/" + v.Text("name"), Topic: v.Text("topic"),
		AckDeadlineSeconds: int32(v.Number("ack_deadline_seconds")), Filter: v.Text("filter"),
		EnableMessageOrdering:     v.Is("enable_message_ordering"),
		EnableExactlyOnceDelivery: v.Is("enable_exactly_once_delivery")}
	if push := v.Block("push_config"); len(push) > 0 {
		out.PushConfig = &pb.PushConfig{PushEndpoint: push.Text("push_endpoint")}
		if token := push.Block("oidc_token"); len(token) > 0 {
			out.PushConfig.AuthenticationMethod = &pb.PushConfig_OidcToken_{OidcToken: &pb.PushConfig_OidcToken{
				ServiceAccountEmail: token.Text("service_account_email"), Audience: token.Text("audience")}}
		}
	}
	if dead := v.Block("dead_letter_policy"); len(dead) > 0 {
		out.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: dead.Text("dead_letter_topic"),
			MaxDeliveryAttempts: int32(dead.Number("max_delivery_attempts"))}
	}
	if retry := v.Block("retry_policy"); len(retry) > 0 {
		shortest, err := time.ParseDuration(retry.Text("minimum_backoff"))
		if err != nil {
			return nil, err
		}
		longest, err := time.ParseDuration(retry.Text("maximum_backoff"))
		if err != nil {
			return nil, err
		}
		out.RetryPolicy = &pb.RetryPolicy{MinimumBackoff: durationpb.New(shortest), MaximumBackoff: durationpb.New(longest)}
	}
	return out, nil
}

// notify publishes a bucket's notifications with Cloud Storage's account. What that may
// not do is left out.
func (in *Installation) notify(n fakegcs.Notification) {
	if in.lost.Load() {
		return
	}
	for _, at := range in.Plan.Of("google_storage_notification") {
		if !eventsOf(at.Values, n) || !in.may(storageAgent, publishPermission, at.Values.Text("topic")) {
			continue
		}
		in.Publish(at.Values.Text("topic"), n.ObjectDescription, n.Attributes())
	}
}

// LoseNotifications makes the notifications of buckets get lost, or no longer.
func (in *Installation) LoseNotifications(lost bool) { in.lost.Store(lost) }

// Publish puts a message into a topic, by its full name.
func (in *Installation) Publish(topic string, data []byte, attributes map[string]string) {
	_, err := in.PubSub.Publish(context.Background(), &pb.PublishRequest{Topic: topic,
		Messages: []*pb.PubsubMessage{{Data: data, Attributes: attributes}}})
	if err != nil {
		in.logf("publish to %s: %v", topic, err)
	}
}

// may reports whether a member may do something. If not, that is noted.
func (in *Installation) may(member, permission, resource string) bool {
	return in.Policy.Check(iam.Request{Member: member, Permission: permission, Resource: resource}) == nil
}

// Permissions that Google's services need.
const (
	publishPermission = "pubsub.topics.publish"
	consumePermission = "pubsub.subscriptions.consume"
	tokenPermission   = "iam.serviceAccounts.getOpenIdToken"
)

// mayForward asks whether Pub/Sub's account may move a dead letter.
func (in *Installation) mayForward(subscription, topic string) bool {
	return in.may(pubsubAgent, publishPermission, topic) && in.may(pubsubAgent, consumePermission, subscription)
}

// pushToken returns the identity token of a push, if Pub/Sub's account may make it.
func (in *Installation) pushToken(account, audience string) string {
	if !in.may(pubsubAgent, tokenPermission, "projects/"+in.project+"/serviceAccounts/"+account) {
		return ""
	}
	return in.IdentityToken(account, audience)
}

// IdentityToken returns an identity token of an account.
func (in *Installation) IdentityToken(account, audience string) string {
	token, err := in.signer.Sign(fakemetadata.Claims{"aud": audience, "email": account, "email_verified": true,
		"azp": account, "sub": account})
	if err != nil {
		panic(err) // the key is good
	}
	return token
}

// Tick calls every target of the plan's timers once, as Cloud Scheduler does by their
// schedules. It returns the errors of calls that failed, which nobody repeats.
func (in *Installation) Tick(ctx context.Context) (failed error) {
	for _, job := range in.Plan.Of("google_cloud_scheduler_job") {
		target := job.Values.Block("http_target")
		token := target.Block("oidc_token")
		status, err := call(ctx, target.Text("http_method"), target.Text("uri"),
			in.IdentityToken(token.Text("service_account_email"), token.Text("audience")), "")
		if err == nil && status >= http.StatusMultipleChoices {
			err = fmt.Errorf("%s is answered with %d", job.Address, status)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// call sends a request and returns its status.
func call(ctx context.Context, method, address, token, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// Audit writes an entry about a machine to the audit log, whose sinks export it.
func (in *Installation) Audit(method, machine string) {
	entry := `{"protoPayload":{"methodName":"` + method + `","status":{"message":"Instance was preempted."}},` +
		`"resource":{"type":"gce_instance","labels":{"instance_id":"` + machine + `"}},` +
		`"timestamp":"` + time.Now().UTC().Format(time.RFC3339) + `"}`
	for _, sink := range in.Plan.Of("google_logging_project_sink") {
		topic, ok := strings.CutPrefix(sink.Values.Text("destination"), "pubsub.googleapis.com/")
		matches := slices.Contains(strings.FieldsFunc(sink.Values.Text("filter"), isQuoted), method)
		if ok && matches && in.may(sink.Values.Text("writer_identity"), publishPermission, topic) {
			in.Publish(topic, []byte(entry), nil)
		}
	}
}

// isQuoted separates the texts of a filter.
func isQuoted(r rune) bool { return r == '"' }
