package planned

import "testing"

const shown = `{"planned_values":{"root_module":{"resources":[
  {"address":"google_pubsub_subscription.push[\"plan\"]","mode":"managed","type":"google_pubsub_subscription",
   "values":{"name":"rollout-plan","topic":"google_pubsub_topic.id(rollout-plan)","ack_deadline_seconds":600,
     "push_config":[{"push_endpoint":"google_cloud_run_v2_service.uri(rollout-plan)","attributes":null}]}},
  {"address":"data.google_project.this","mode":"data","type":"google_project","values":{}}]}}}`

func TestReferencesAreReplacedWhereverTheyStand(t *testing.T) {
	t.Parallel()
	d, err := Read([]byte(shown))
	if err != nil {
		t.Fatal(err)
	}
	d = d.Resolve(func(attribute, name string) (string, bool) {
		return "http://" + name, attribute == "google_cloud_run_v2_service.uri"
	})
	if len(d.Resources) != 1 || len(d.Of("google_pubsub_subscription")) != 1 {
		t.Fatalf("the plan has the resources %v, want the managed one", d.Resources)
	}
	v := d.Of("google_pubsub_subscription")[0].Values
	if got := v.Block("push_config").Text("push_endpoint"); got != "http://rollout-plan" {
		t.Errorf("pushes go to %q", got)
	}
	if got := v.Text("topic"); got != "google_pubsub_topic.id(rollout-plan)" {
		t.Errorf("the topic is %q, want the reference, which is not known", got)
	}
	if n := v.Number("ack_deadline_seconds"); n != 600 || v.Number("absent") != 0 || v.Is("absent") ||
		len(v.Block("push_config", "absent")) > 0 {
		t.Errorf("the deadline is %d, or what is absent has a value", n)
	}
	if _, err := Read([]byte("{")); err == nil {
		t.Error("what is not JSON was read")
	}
}
