package main

import (
	"strings"
	"testing"
)

func TestDeploymentHasNoViolations(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil).planned(t)
	if len(d) < 100 {
		t.Errorf("the deployment has %d resources only", len(d))
	}
	for _, v := range violations(t, d) {
		t.Error(v)
	}
}

// Each mistake is refused by OpenTofu with the provider's schemas, or by the policies.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit edit
		want string
	}{
		"an unknown argument": {edit{"queues.tf", "retry_policy {", "retry_policy {\n    jitter = true"},
			`An argument named "jitter" is not expected here`},
		"an unknown resource": {edit{"outputs.tf", "", "resource \"google_pubsub_queue\" \"q\" {}\n"},
			`does not support resource type "google_pubsub_queue"`},
		"a wrong type": {
			edit{"queues.tf",
				"ack_deadline_seconds       = local.push_seconds",
				`ack_deadline_seconds = "ten minutes"`},
			"a number is required"},
		"a missing argument": {
			edit{"queues.tf",
				"topic                      = google_pubsub_topic.topic[each.key].id",
				""},
			`The argument "topic" is required`},
		"an undeclared reference": {
			edit{"functions.tf",
				"local.push_account\n      audience",
				"local.caller\n      audience"},
			`A local value with the name "caller" has not been declared`},
		"a newer syntax": {
			edit{"outputs.tf",
				"",
				"removed {\n  from = google_storage_bucket.data\n}\n"},
			"Unsupported block type"},
		"a subscription that expires": {
			edit{"queues.tf",
				`ttl = ""`,
				`ttl = "2678400s"`},
			"it expires when it is idle"},
		"a subscription with the default expiry": {edit{"queues.tf", "expiration_policy {\n    ttl = \"\"\n  }", ""},
			"it expires when it is idle"},
		"no publisher of dead letters": {
			edit{"queues.tf",
				"for_each = local.dead_letters\n  topic ",
				"for_each = toset([\"tasks-dead\"])\n  topic "},
			"Pub/Sub may not publish its dead letters to google_pubsub_topic.id(rollout-coordinate-dead)"},
		"no remover of dead letters": {edit{"queues.tf", "for_each     = local.pulls", "for_each     = {}"},
			"Pub/Sub may not remove its dead letters"},
		"no maker of tokens": {
			edit{"accounts.tf",
				`role               = "roles/iam.serviceAccountTokenCreator"`,
				`role = "roles/pubsub.publisher"`},
			"Pub/Sub may not make tokens"},
		"no notifier": {
			edit{"functions.tf",
				"member = data.google_storage_project_service_account.agent.member",
				"member = local.pubsub_agent"},
			"Cloud Storage may not publish to google_pubsub_topic.id(rollout-objects)"},
		"no caller": {edit{"functions.tf", `if !contains(["api", "leave"], name) }`, `if name != "api" && name != "plan" }`},
			"google_service_account.email(rollout-push) may not call rollout-plan"},
		"no reader of the audit log": {
			edit{"functions.tf",
				"google_logging_project_sink.machines.writer_identity",
				"local.pubsub_agent"},
			"the sink may not publish"},
		"dead letters that are lost": {
			edit{"queues.tf",
				"for_each                   = local.dead_letters",
				"for_each = toset([\"tasks-dead\"])"},
			"its dead letters go to a topic without a subscription"},
		"a public bucket": {
			edit{"data.tf",
				`public_access_prevention    = "enforced"`,
				`public_access_prevention = "inherited"`},
			"objects can be made public"},
		"a public object": {
			edit{"data.tf",
				"member = google_service_account.program[each.value.who].member",
				`member = "allUsers"`},
			"everyone is granted"},
		"a basic role": {
			edit{"accounts.tf",
				`role      = "roles/secretmanager.secretAccessor"`,
				`role = "roles/editor"`},
			`the role "roles/editor" is none of a few permissions`},
		"a role of everything": {edit{"accounts.tf", `"storage.objects.delete"`, `"storage.objects.*"`},
			"it has the permission storage.objects.*"},
		"a missing zone": {
			edit{"machines.tf",
				"= each.value.zones\n  distribution_policy_target_shape",
				"= slice(each.value.zones, 0, 1)\n  distribution_policy_target_shape"},
			"google_compute_region_instance_group_manager.machines[\"small-g2\"]: it takes the zones [us-central1-a]"},
		"a zone without machines": {
			edit{"machines.tf",
				"= each.value.zones\n  distribution_policy_target_shape",
				"= data.google_compute_zones.all.names\n  distribution_policy_target_shape"},
			"us-central1-f], and"},
		"balanced zones": {
			edit{"machines.tf",
				`distribution_policy_target_shape = "ANY"`,
				`distribution_policy_target_shape = "EVEN"`},
			"it waits for zones"},
		"machines that are replaced": {
			edit{"machines.tf",
				`"OPPORTUNISTIC"`,
				`"PROACTIVE"`},
			"would replace working machines"},
		"machines that stay": {
			edit{"machines.tf",
				`? null : "DELETE"`,
				`? null : "STOP"`},
			"it is no spot machine that is deleted"},
		"an old driver": {
			edit{"variables.tf",
				"nvidia-580\"",
				"nvidia-570\""},
			"has no driver of version 580"},
		"functions that can't start machines": {
			edit{"accounts.tf",
				`? local.scalers : toset([])`,
				`? toset(["leave"]) : toset([])`},
			"the function reclaim may not change its size"},
		"machines that may end others": {
			edit{"locals.tf",
				`toset(["coordinate", "reclaim", "leave"])`,
				`toset(["coordinate", "reclaim", "leave", "worker"])`},
			"machines may change groups"},
		"a role with more of Compute Engine": {
			edit{"accounts.tf",
				`"compute.instanceGroupManagers.update"]`,
				`"compute.instanceGroupManagers.update", "compute.instances.delete"]`},
			"it has the permission compute.instances.delete"},
		"machines that may not leave": {
			edit{"functions.tf",
				`member   = google_service_account.program[each.key].member`,
				`member   = google_service_account.program["api"].member`},
			"machines may not call it"},
		"machines whose tokens are refused": {
			edit{"functions.tf",
				`[local.leave_audience]`,
				`[local.name]`},
			"it refuses the tokens of machines"},
		"machines that can't reach the function": {
			edit{"functions.tf",
				`contains(["api", "leave"], each.key) ? "INGRESS`,
				`contains(["api"], each.key) ? "INGRESS`},
			"machines with external addresses can't reach it"},
		"machines without an address to leave by": {
			edit{"machines.tf",
				`rollout-leave              =`,
				`leave =`},
			"its machines do not know how to leave"},
		"soft delete": {edit{"data.tf", "retention_duration_seconds = 0", "retention_duration_seconds = 604800"},
			"deleted objects are billed"},
		"soft delete by default": {
			edit{"data.tf",
				"soft_delete_policy {\n    retention_duration_seconds = 0\n  }",
				""},
			"deleted objects are billed"},
		"no versions": {
			edit{"data.tf",
				"enabled = true",
				"enabled = false"},
			"it keeps no versions"},
		"a deadline over 600 s": {
			edit{"queues.tf",
				"push_seconds = 600",
				"push_seconds = 900"},
			"the ack deadline is 900 s"},
		"a request over 600 s": {
			edit{"functions.tf",
				`timeout                          = "600s"`,
				`timeout = "900s"`},
			"a request may take 900 s"},
		"messages that are kept too long": {
			edit{"queues.tf",
				`"1209600s"`,
				`"2678401s"`},
			"messages are kept for 2678401 s"},
		"a command that the image lacks": {
			edit{"functions.tf",
				`["/functions"]`,
				`["/gpuworker"]`},
			`the image has no program ["/gpuworker"]`},
		"a script that is not uploaded": {
			edit{"jobs.tf",
				"/programs/cloud-run.sh",
				"/programs/job.sh"},
			"/programs/job.sh is not in the bucket"},
		"no starter of tasks": {edit{"jobs.tf", `["coordinate", "reclaim"]`, `["coordinate"]`},
			"google_cloud_run_v2_job.worker[\"large\"]: reclaim may not run its tasks"},
		"a role that can't count tasks": {edit{"accounts.tf", `"run.executions.list",`, ""},
			"and functions need [run.executions.cancel run.executions.list"},
		"more tasks at once than an execution has": {edit{"jobs.tf", "task_count = 1", "task_count = 1\n    parallelism = 8"},
			"executions of fewer tasks than its parallelism are refused"},
		"a protected service": {
			edit{"functions.tf",
				"deletion_protection = false",
				"deletion_protection = true"},
			"terraform destroy stops at it"},
		"an unprotected database": {
			edit{"data.tf",
				`"ABANDON" # destroy leaves it`,
				`"DELETE"`},
			"terraform destroy would delete the documents"},
		"documents of a destroyed bucket": {
			edit{"data.tf",
				"force_destroy               = false",
				"force_destroy = true"},
			"terraform destroy would delete what people stored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, nil, c.edit)
			said := w.problem(t)
			if said == "" {
				said = strings.Join(violations(t, w.plan(t)), "\n")
			}
			if !strings.Contains(said, c.want) {
				t.Errorf("found %.2000q, want %q", said, c.want)
			}
		})
	}
}

// Options that can't work are refused with a remedy.
func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options map[string]any
		want    string
	}{
		"an image by its tag":             {map[string]any{"image": "functions:latest"}, "Name the image by its digest"},
		"a budget of no billing account":  {map[string]any{"budget": 100}, "A budget needs the billing account"},
		"an unknown origin of the bucket": {map[string]any{"bucket": "mine"}, "Use made or existing"},
		"a worker that is not built":      {map[string]any{"worker": "none"}, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if said := newWorkspace(t, c.options).problem(t); !strings.Contains(said, c.want) {
				t.Errorf("said %.2000q, want %q", said, c.want)
			}
		})
	}
}

// A group's size is what functions and people make it: a plan after a deployment does not set
// it back, and changes nothing else either.
func TestSizesOfGroupsAreIgnored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edits   []edit
		changes bool
	}{
		"ignored":     {nil, false},
		"not ignored": {[]edit{{"machines.tf", "ignore_changes = [target_size]", ""}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, nil, c.edits...)
			if out, ok := w.tofu(t, "apply", "-auto-approve", "-input=false", "-no-color"); !ok {
				t.Fatal(inOneLine(out))
			}
			w.replaceInState(t, `"target_size": 0,`, `"target_size": 5,`)
			out, unchanged := w.tofu(t, "plan", "-input=false", "-no-color", "-detailed-exitcode")
			if unchanged == c.changes || c.changes && !strings.Contains(out, "target_size") {
				_, changes, _ := strings.Cut(out, "OpenTofu used")
				t.Errorf("the plan changes something: %v, want %v\n%s", !unchanged, c.changes, changes)
			}
		})
	}
}
