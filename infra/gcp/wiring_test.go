package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// functionNames are those of functions/gcp.
var functionNames = []string{host.SubmitFunction, host.PlanFunction, host.CoordinateFunction, host.FinalizeFunction,
	host.ReclaimFunction, host.InterruptFunction, host.APIFunction, leaveFunction}

// leaveFunction and leaveAudience are those of shared/gcp/leave.go.
const (
	leaveFunction = "leave"
	leaveAudience = "https://rollout-leave.acme-ml.internal"
)

// Topics of shared/gcp that no queue of the product names.
const (
	objectsTopic  = "objects"
	machinesTopic = "machines"
	eventsTopic   = "events"
)

// names returns an attribute of the resources of the type, sorted.
func (d deployment) names(kind, attribute string) (out []string) {
	for _, r := range d.of(kind) {
		out = append(out, r.Values.text(attribute))
	}
	slices.Sort(out)
	return out
}

func TestTopicsAndSubscriptionsAreThoseOfTheProduct(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	dead := queue.DeadLetterQueue
	want := []string{objectsTopic, machinesTopic, host.SubmitFunction, host.PlanFunction, host.FinalizeFunction,
		host.CoordinateQueue, dead(host.CoordinateQueue), dead(host.TaskQueue), host.DoctorQueue}
	for _, pool := range []string{"small", "large", "whole"} {
		for _, q := range []string{host.WorkQueue(pool), host.UrgentQueue(pool)} {
			want = append(want, q, dead(q))
		}
	}
	for i := range want {
		want[i] = "rollout-" + want[i]
	}
	slices.Sort(want)
	topics := append([]string{"rollout-" + eventsTopic}, want...) // to which people subscribe
	slices.Sort(topics)
	if d := cmp.Diff(topics, d.names("google_pubsub_topic", "name")); d != "" {
		t.Errorf("topics (-want +got)\n%s", d)
	}
	if d := cmp.Diff(want, d.names("google_pubsub_subscription", "name")); d != "" {
		t.Errorf("subscriptions (-want +got)\n%s", d)
	}
	pushed := map[string]string{}
	for _, s := range d.of("google_pubsub_subscription") {
		if s.Values.block("dead_letter_policy").number("max_delivery_attempts") != queue.MaxReceives &&
			!queue.IsDeadLetterQueue(s.Values.text("name")) {
			t.Errorf("%s: the product counts %d deliveries", s.Address, queue.MaxReceives)
		}
		if to := s.Values.block("push_config").text("push_endpoint"); to != "" {
			pushed[strings.TrimPrefix(s.Values.text("name"), "rollout-")] = to
		}
	}
	uri := func(function string) string { return "google_cloud_run_v2_service.uri(rollout-" + function + ")" }
	if d := cmp.Diff(map[string]string{
		objectsTopic: uri(host.SubmitFunction), host.SubmitFunction: uri(host.SubmitFunction),
		host.PlanFunction: uri(host.PlanFunction), host.FinalizeFunction: uri(host.FinalizeFunction),
		host.CoordinateQueue: uri(host.CoordinateFunction), machinesTopic: uri(host.InterruptFunction),
	}, pushed); d != "" {
		t.Errorf("pushes (-want +got)\n%s", d)
	}
}

func TestServicesAreTheFunctions(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	var targets []string
	for _, s := range d.of("google_cloud_run_v2_service") {
		template := s.Values.block("template")
		env := map[string]string{}
		for _, e := range template.block("containers").blocks("env") {
			env[e.text("name")] = e.text("value")
		}
		target := env["FUNCTION_TARGET"]
		targets = append(targets, target)
		if s.Values.text("name") != "rollout-"+target ||
			template.text("service_account") != "google_service_account.email(rollout-"+target+")" {
			t.Errorf("%s is the function %s with the account %s", s.Address, target, template.text("service_account"))
		}
		got, err := config.ParseDeployment("ROLLOUT_CONFIG", []byte(env["ROLLOUT_CONFIG"]))
		if err != nil || got.Cloud.GCS.Bucket != "acme-rollout" {
			t.Errorf("%s: the config of %q, %v", s.Address, got.Cloud.GCS.Bucket, err)
		}
		most := template.block("scaling").number("max_instance_count")
		if (target == host.CoordinateFunction) && (most != 1 || template.number("max_instance_request_concurrency") != 1000) {
			t.Errorf("coordinate has up to %v instances: steps of a run would compete", most)
		}
		if (s.Values["invoker_iam_disabled"] == true) != (target == host.APIFunction) {
			t.Errorf("%s: everyone may call it: %v", s.Address, s.Values["invoker_iam_disabled"])
		}
	}
	slices.Sort(targets)
	if d := cmp.Diff(slices.Sorted(slices.Values(functionNames)), targets); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	n := d.of("google_storage_notification")[0].Values
	if n.text("object_name_prefix") != "team-a/"+record.PromptsPrefix || n.text("bucket") != "acme-rollout" {
		t.Errorf("notifications of %s in %s", n.text("object_name_prefix"), n.text("bucket"))
	}
}

func TestWithoutTheTokenTheAPIDemandsAnInvoker(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil, edit{"locals.tf", `token_secret = "api-token"`, `token_secret = "another"`}).planned(t)
	for _, s := range d.of("google_cloud_run_v2_service") {
		if s.Values["invoker_iam_disabled"] == true {
			t.Errorf("everyone may call %s", s.Values.text("name"))
		}
	}
}

// Each program may send to the queues that its code sends to, and to no others.
func TestProgramsMayPublishWhatTheySend(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	dead := queue.DeadLetterQueue
	var pools, deadPools []string
	for _, pool := range []string{"small", "large", "whole"} {
		for _, q := range []string{host.WorkQueue(pool), host.UrgentQueue(pool)} {
			pools, deadPools = append(pools, q), append(deadPools, dead(q))
		}
	}
	want := map[string][]string{
		host.SubmitFunction:     {host.PlanFunction, dead(host.TaskQueue)},
		host.PlanFunction:       {host.PlanFunction, host.CoordinateQueue, dead(host.TaskQueue)},
		host.CoordinateFunction: append(pools, host.PlanFunction, host.FinalizeFunction, dead(host.CoordinateQueue)),
		host.FinalizeFunction:   {host.FinalizeFunction, host.CoordinateQueue, dead(host.TaskQueue)},
		host.ReclaimFunction:    {host.CoordinateQueue, host.SubmitFunction, host.PlanFunction, eventsTopic},
		host.APIFunction:        {host.CoordinateQueue, host.SubmitFunction},
		"worker":                append([]string{host.CoordinateQueue}, deadPools...),
	}
	got := map[string][]string{}
	for _, g := range d.of("google_pubsub_topic_iam_member") {
		if who, ok := strings.CutPrefix(g.Values.text("member"), "google_service_account.member(rollout-"); ok {
			who = strings.TrimSuffix(who, ")")
			topic := strings.TrimPrefix(g.Values.text("topic"), "google_pubsub_topic.id(rollout-")
			got[who] = append(got[who], strings.TrimSuffix(topic, ")"))
		}
	}
	for _, all := range []map[string][]string{want, got} {
		for who := range maps.Keys(all) {
			slices.Sort(all[who])
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Objects that others wrote are not removed, and so not replaced, but for the files of the API, which
// also removes those of runs for its clients: only scratch objects below pending/ are.
func TestObjectsAreNeverReplaced(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	removing, ofRuns := 0, 0
	for _, g := range d.of("google_storage_bucket_iam_member") {
		condition := g.Values.block("condition").text("expression")
		if strings.HasSuffix(g.Values.text("role"), "_objects_remove)") {
			removing++
			for _, part := range strings.Split(condition, " || ") {
				isFile := strings.Contains(part, "/objects/team-a/"+record.FilesPrefix) &&
					!strings.Contains(g.Address, "worker") && !strings.Contains(g.Address, "trainer")
				const objects = `resource.name.startsWith("projects/_/buckets/acme-rollout/objects/team-a/`
				const runs = objects + record.RunsPrefix + `") && `
				ofRun := strings.Contains(g.Address, "api-remove") &&
					(part == runs+`resource.name.endsWith("/`+record.CompletionsFile+`")` ||
						part == runs+`resource.name.endsWith("/`+record.ErrorsFile+`")`)
				if ofRun {
					ofRuns++
				}
				if !isFile && !ofRun && !strings.Contains(part, "/objects/team-a/"+record.PendingPrefix) {
					t.Errorf("%s may remove %s", g.Values.text("member"), part)
				}
			}
		}
		creates := strings.HasSuffix(g.Values.text("role"), "_objects_create)")
		if creates && strings.Contains(g.Address, "worker") && strings.Contains(condition, record.RunsPrefix) {
			t.Errorf("workers may create the files of runs: %s", condition)
		}
	}
	if removing == 0 || ofRuns != 2 {
		t.Errorf("%d programs may remove scratch objects, and the API %d files of a run, want 2", removing, ofRuns)
	}
}

// Machines read copies of models and create them. No lifecycle rule deletes one that is in
// use.
func TestCopiesOfModelsAreKept(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	const models = `resource.name.startsWith("projects/_/buckets/acme-rollout/objects/team-a/` + record.ModelsPrefix + `")`
	grants := 0
	for _, g := range d.of("google_storage_bucket_iam_member") {
		if strings.Contains(g.Values.block("condition").text("expression"), models) {
			grants++
			if !strings.Contains(g.Values.text("member"), "(rollout-worker)") {
				t.Errorf("%s may use models: %s", g.Values.text("member"), g.Address)
			}
		}
	}
	if grants != 2 {
		t.Errorf("workers have %d grants of models, want one to read and one to create", grants)
	}
	rules := 0
	for _, b := range d.of("google_storage_bucket") {
		for _, rule := range b.Values.blocks("lifecycle_rule") {
			condition := rule.block("condition")
			if b.Values.text("name") != "acme-rollout" || condition.text("with_state") != "LIVE" {
				continue
			}
			rules++
			prefixes := condition.texts("matches_prefix")
			if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
				return strings.HasPrefix("team-a/"+record.ModelsPrefix, prefix)
			}) {
				t.Errorf("a rule deletes copies of models: %v", prefixes)
			}
		}
	}
	if rules == 0 {
		t.Error("the bucket has no lifecycle rules")
	}
}

// Viewers read; operators also upload prompts and send commands. Nobody may replace objects.
func TestPeopleMayWhatTheirCommandsNeed(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, map[string]any{"viewers": []string{"user:v@example.org"},
		"operators": []string{"user:o@example.org"}}).planned(t)
	got := map[string][]string{}
	for _, g := range d {
		if who, ok := strings.CutPrefix(g.Values.text("member"), "user:"); ok {
			_, role, own := strings.Cut(g.Values.text("role"), "(rollout_")
			if role = strings.TrimSuffix(role, ")"); !own {
				role = g.Values.text("topic")
			}
			got[who] = append(got[who], role)
			if strings.HasPrefix(role, "documents") && !strings.HasSuffix(g.Values.block("condition").text("expression"),
				`== "projects/acme-ml/databases/rollout"`) {
				t.Errorf("%s may use other databases", who)
			}
		}
	}
	view := []string{"documents_read", "objects_list", "objects_read"}
	operate := append([]string{"bucket_see", "call", "documents_write", "google_pubsub_topic.id(rollout-coordinate)",
		"google_pubsub_topic.id(rollout-submit)", "objects_create"}, view...)
	slices.Sort(operate)
	for who := range maps.Keys(got) {
		slices.Sort(got[who])
	}
	if d := cmp.Diff(map[string][]string{"v@example.org": view, "o@example.org": operate}, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// bought returns the settings of testConfig with groups whose machines are bought like that.
func bought(t *testing.T, provisioning string) settings {
	t.Helper()
	s, _, err := readSettings("rollout.toml", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range s.Pools {
		if p.Machines == config.MachinesGroup {
			p.Provisioning = provisioning
			s.Pools[name] = p
		}
	}
	return s
}

func TestOptionsChangeTheDeployment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options map[string]any
		want    func(deployment) bool
	}{
		"no machines": {map[string]any{"gpu": false}, func(d deployment) bool {
			return len(d.of("google_compute_region_instance_group_manager"))+len(d.of("google_cloud_run_v2_job"))+
				len(d.of("google_compute_network"))+len(d.of("google_storage_bucket_object")) == 0
		}},
		"what an earlier deployment left": {map[string]any{"bucket": "existing",
			"database": "existing"}, func(d deployment) bool {
			return !slices.Contains(d.names("google_storage_bucket", "name"), "acme-rollout") &&
				len(d.of("google_firestore_database")) == 0 && len(d.of("google_firestore_field")) == 1 &&
				len(d.of("google_storage_notification")) == 1
		}},
		"an own network without external addresses": {map[string]any{"subnetwork": "projects/p/regions/r/subnetworks/s",
			"external_addresses": false}, func(d deployment) bool {
			at := d.of("google_compute_region_instance_template")[0].Values.block("network_interface")
			return at.text("subnetwork") == "projects/p/regions/r/subnetworks/s" && len(at.blocks("access_config")) == 0 &&
				len(d.of("google_compute_network")) == 0
		}},
		"a budget and an address": {map[string]any{"budget": 100, "billing_account": "012345-567890-ABCDEF",
			"email": "you@example.org"}, func(d deployment) bool {
			b := d.of("google_billing_budget")[0].Values
			return b.block("amount", "specified_amount").text("units") == "100" &&
				len(b.block("all_updates_rule").texts("monitoring_notification_channels")) == 1 &&
				len(d.of("google_monitoring_alert_policy")[0].Values.texts("notification_channels")) == 1
		}},
		"e-mails of what happens to runs": {map[string]any{"email": "you@example.org"}, func(d deployment) bool {
			all := d.of("google_monitoring_alert_policy")
			if len(all) != 2 || len(all[1].Values.texts("notification_channels")) != 1 {
				return false
			}
			log := all[1].Values.block("conditions", "condition_matched_log")
			program, err := os.ReadFile("../../functions/gcp/internal/cloudrun/told.go")
			_, message, found := strings.Cut(log.text("filter"), "jsonPayload.msg = ")
			return err == nil && found && strings.Contains(string(program), "const Told = "+message) &&
				strings.Contains(log.text("filter"), `"rollout-reclaim"`)
		}},
		"without an address no e-mail": {nil, func(d deployment) bool {
			return len(d.of("google_monitoring_alert_policy")) == 1
		}},
		"machines that wait for capacity": {map[string]any{
			"settings": bought(t, config.ProvisioningFlexStart)}, func(d deployment) bool {
			s := d.of("google_compute_region_instance_template")[0].Values.block("scheduling")
			return s.text("provisioning_model") == "FLEX_START" && s.block("max_run_duration").number("seconds") == 604800
		}},
		"machines at the list price": {map[string]any{
			"settings": bought(t, config.ProvisioningStandard)}, func(d deployment) bool {
			s := d.of("google_compute_region_instance_template")[0].Values.block("scheduling")
			return s.text("provisioning_model") == "STANDARD" && s["preemptible"] == false &&
				s.text("instance_termination_action") == ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !c.want(newWorkspace(t, c.options).planned(t)) {
				t.Error("the deployment does not have it")
			}
		})
	}
}

// The script of a machine has the settings of its pool, also those with quotes, and is a
// valid script.
func TestStartupScriptHasThePoolsSettings(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	for _, m := range d.of("google_compute_region_instance_template") {
		metadata, _ := m.Values["metadata"].(map[string]any)
		script, _ := metadata["startup-script"].(string)
		path := filepath.Join(t.TempDir(), "startup.sh")
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "bash", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		exports, _, _ := strings.Cut(script, "\n# Each machine")
		out, err := exec.CommandContext(t.Context(), "bash", "-c", exports+
			"\nprintf '%s|' \"$ROLLOUT_POOL\" \"$ROLLOUT_MODEL\" \"$ROLLOUT_READY_WITHIN\" "+
			"\"$ROLLOUT_HUB_SECRET\" \"$ROLLOUT_PROGRAMS\"; "+
			"printf '%s' \"$ROLLOUT_CONFIG\"").Output()
		begin := "small|org/small|1200|rollout-hf-token|acme-rollout-programs|"
		if strings.Contains(m.Address, "whole") {
			begin = "whole|gs://acme-models/llama/|2400|rollout-hf-token|acme-rollout-programs|"
		}
		if err != nil || !strings.HasPrefix(string(out), begin) {
			t.Fatalf("%v: the script exports %.200s, want %s", err, out, begin)
		}
		got, err := config.ParseDeployment("ROLLOUT_CONFIG", out[len(begin):])
		if err != nil || got.Pool("small").Revision != "it's" || got.Pool("whole").EngineArgs[2] != "$(touch /tmp/x)" {
			t.Errorf("the machine's config is %+v, %v", got.Pools, err)
		}
	}
}

func TestGroupsAndJobsAreAsTheirPoolsDescribeThem(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	found := map[string]bool{}
	for _, m := range d.of("google_compute_region_instance_template") {
		disk := m.Values.block("disk")
		got := []any{m.Values.text("machine_type"), disk.text("disk_type"), disk.number("disk_size_gb"),
			disk.text("source_image")}
		pool, want := "small", []any{"g2-standard-8", "pd-balanced", 150.0,
			"projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"}
		switch {
		case strings.Contains(m.Address, "whole-a3"):
			pool, want = "whole", []any{"a3-highgpu-8g", "pd-balanced", 300.0,
				"projects/acme-ml/global/images/family/gpu-nvidia-580"}
			if strings.Contains(m.Address, "whole-a3ultra") { // it takes Hyperdisk alone
				want[0], want[1] = "a3-ultragpu-8g", "hyperdisk-balanced"
			}
			for _, labels := range []any{m.Values["labels"], disk["labels"]} {
				if l, _ := labels.(map[string]any); l["team"] != "ml" {
					t.Errorf("%s has the labels %v", m.Address, labels)
				}
			}
		case strings.Contains(m.Address, "small-a2"):
			want[0] = "a2-highgpu-1g"
		}
		if found[pool] = true; !cmp.Equal(got, want) {
			t.Errorf("%s has %v, want %v", m.Address, got, want)
		}
	}
	if !found["small"] || !found["whole"] {
		t.Errorf("there are templates of %v", found)
	}
	task := d.of("google_cloud_run_v2_job")[0].Values.block("template", "template", "containers")
	env := map[string]string{}
	for _, e := range task.blocks("env") {
		env[e.text("name")] = e.text("value")
	}
	if env["NCCL_DEBUG"] != "$(touch /tmp/x)" || env["ROLLOUT_READY_WITHIN"] != "1200" ||
		task.text("image") != "vllm/vllm-openai:v0.21.0-cu129" {
		t.Errorf("the job has the image %s and the variables %v", task.text("image"), env)
	}
}

// Workers read the models of their pools, and no other object of those buckets.
func TestWorkersMayReadModelsInBuckets(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	var conditions, roles []string
	for _, g := range d.of("google_storage_bucket_iam_member") {
		if g.Values.text("bucket") != "acme-models" {
			continue
		}
		if g.Values.text("member") != "google_service_account.member(rollout-worker)" {
			t.Errorf("%s may read models", g.Values.text("member"))
		}
		_, role, _ := strings.Cut(g.Values.text("role"), "(rollout_")
		roles = append(roles, strings.TrimSuffix(role, ")"))
		if c := g.Values.block("condition").text("expression"); c != "" {
			conditions = append(conditions, c)
		}
	}
	slices.Sort(roles)
	want := []string{`resource.name.startsWith("projects/_/buckets/acme-models/objects/llama/") || ` +
		`resource.name == "projects/_/buckets/acme-models/objects/llama"`}
	if !slices.Equal(roles, []string{"objects_list", "objects_read"}) || !slices.Equal(conditions, want) {
		t.Errorf("workers have %q with %q, want %q", roles, conditions, want)
	}
}

func TestScriptsHaveNoFaultsOfShell(t *testing.T) {
	t.Parallel()
	shellcheck, err := exec.LookPath("shellcheck")
	if err != nil {
		lacks(t, "shellcheck")
	}
	for _, script := range []string{"bootstrap.sh", "cloud-run.sh"} {
		if out, err := exec.CommandContext(t.Context(), shellcheck, "--shell=bash", script).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
