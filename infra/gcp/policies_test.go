package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rollout/shared/host"
)

// Accounts of Google's services, as they use an installation.
const (
	pubsubAgent  = "serviceAccount:service-27@gcp-sa-pubsub.iam.gserviceaccount.com"
	storageAgent = "serviceAccount:service-27@gs-project-accounts.iam.gserviceaccount.com"
)

// googlesRoles are the roles of Google's that may be granted. Each has few permissions, which
// suffice for what they are granted for.
var googlesRoles = []string{
	"roles/pubsub.publisher", "roles/pubsub.subscriber", "roles/secretmanager.secretAccessor",
	"roles/iam.serviceAccountTokenCreator", "roles/cloudkms.cryptoKeyEncrypterDecrypter",
}

// violations returns what is wrong with a deployment that Terraform accepts, each as the
// address and what is wrong.
func violations(t *testing.T, d deployment) []string {
	t.Helper()
	c := &checker{t: t, d: d}
	c.subscriptions()
	c.grants()
	c.roles()
	c.buckets()
	c.services()
	c.machines()
	c.fleet()
	c.jobs()
	return c.found
}

// checker collects violations.
type checker struct {
	t     *testing.T
	d     deployment
	found []string
}

func (c *checker) add(r resource, format string, args ...any) {
	c.found = append(c.found, r.Address+": "+fmt.Sprintf(format, args...))
}

// want adds a violation unless ok.
func (c *checker) want(r resource, ok bool, format string, args ...any) {
	if !ok {
		c.add(r, format, args...)
	}
}

// granted reports whether a member has the role on what the resources of a kind name in an
// attribute.
func (c *checker) granted(kind, attribute, target, role, member string) bool {
	return slices.ContainsFunc(c.d.of(kind), func(r resource) bool {
		v := r.Values
		return v.text(attribute) == target && v.text("role") == role && v.text("member") == member
	})
}

func (c *checker) subscriptions() {
	for _, s := range c.d.of("google_pubsub_subscription") {
		v := s.Values
		expiry := v.blocks("expiration_policy")
		c.want(s, len(expiry) == 1 && expiry[0]["ttl"] == "", "it expires when it is idle for 31 days")
		deadline := v.number("ack_deadline_seconds")
		c.want(s, deadline >= 10 && deadline <= 600, "the ack deadline is %v s, and Pub/Sub allows 10 to 600", deadline)
		kept := seconds(v.text("message_retention_duration"))
		c.want(s, kept >= 600 && kept <= 31*86400, "messages are kept for %d s, and Pub/Sub allows 600 to 2678400", kept)
		push := v.block("push_config")
		if len(push) > 0 {
			token := push.block("oidc_token")
			c.want(s, token.text("service_account_email") != "" && token.text("audience") == push.text("push_endpoint"),
				"pushes have no identity token for the function")
			c.want(s, v.block("retry_policy").text("minimum_backoff") != "", "a failing push is repeated at once")
		}
		dead := v.block("dead_letter_policy")
		if strings.HasSuffix(v.text("name"), "-dead") {
			c.want(s, len(dead) == 0, "dead letters have dead letters")
			continue
		}
		attempts := dead.number("max_delivery_attempts")
		c.want(s, attempts >= 5 && attempts <= 100, "it has %v deliveries before a dead letter, and Pub/Sub allows 5 to 100",
			attempts)
		c.want(s, slices.ContainsFunc(c.d.of("google_pubsub_subscription"), func(other resource) bool {
			return other.Values.text("topic") == dead.text("dead_letter_topic") && other.Address != s.Address
		}), "its dead letters go to a topic without a subscription, which loses them")
	}
}

// grants checks the grants whose lack is silent.
func (c *checker) grants() {
	for _, s := range c.d.of("google_pubsub_subscription") {
		dead := s.Values.block("dead_letter_policy").text("dead_letter_topic")
		if dead != "" {
			c.want(s, c.granted("google_pubsub_topic_iam_member", "topic", dead, "roles/pubsub.publisher", pubsubAgent),
				"Pub/Sub may not publish its dead letters to %s", dead)
			c.want(s, c.granted("google_pubsub_subscription_iam_member", "subscription", s.Values.text("id"),
				"roles/pubsub.subscriber", pubsubAgent), "Pub/Sub may not remove its dead letters")
		}
		if push := s.Values.block("push_config"); len(push) > 0 {
			c.mayCall(s, push.text("push_endpoint"), push.block("oidc_token").text("service_account_email"))
		}
	}
	for _, j := range c.d.of("google_cloud_scheduler_job") {
		target := j.Values.block("http_target")
		c.mayCall(j, target.text("uri"), target.block("oidc_token").text("service_account_email"))
	}
	for _, a := range c.d.of("google_service_account") {
		if a.Values.text("account_id") == "rollout-push" {
			c.want(a, c.granted("google_service_account_iam_member", "service_account_id", a.Values.text("name"),
				"roles/iam.serviceAccountTokenCreator", pubsubAgent), "Pub/Sub may not make tokens of the account")
		}
	}
	for _, n := range c.d.of("google_storage_notification") {
		c.want(n, c.granted("google_pubsub_topic_iam_member", "topic", n.Values.text("topic"), "roles/pubsub.publisher",
			storageAgent), "Cloud Storage may not publish to %s", n.Values.text("topic"))
	}
	for _, s := range c.d.of("google_logging_project_sink") {
		topic := strings.TrimPrefix(s.Values.text("destination"), "pubsub.googleapis.com/")
		c.want(s, c.granted("google_pubsub_topic_iam_member", "topic", topic, "roles/pubsub.publisher",
			s.Values.text("writer_identity")), "the sink may not publish to %s", topic)
	}
}

// mayCall checks that the account of a token may call the service at the address.
func (c *checker) mayCall(from resource, uri, account string) {
	for _, s := range c.d.of("google_cloud_run_v2_service") {
		if s.Values.text("uri") != uri {
			continue
		}
		c.want(from, c.granted("google_cloud_run_v2_service_iam_member", "name", s.Values.text("name"),
			"google_project_iam_custom_role.name(rollout_call)", "serviceAccount:"+account),
			"%s may not call %s", account, s.Values.text("name"))
		return
	}
	c.add(from, "it calls %s, which is not a function", uri)
}

// taskPermissions are what shared/gcp/jobs_api.go needs.
var taskPermissions = []string{"run.executions.cancel", "run.executions.list", "run.jobs.run",
	"run.jobs.runWithOverrides"}

func (c *checker) roles() {
	for _, r := range c.d {
		if strings.HasSuffix(r.Type, "_iam_custom_role") {
			if r.Values.text("role_id") == "rollout_tasks" {
				has := slices.Sorted(slices.Values(r.Values.texts("permissions")))
				c.want(r, slices.Equal(has, taskPermissions), "it has %v, and functions need %v", has, taskPermissions)
			}
			for _, p := range r.Values.texts("permissions") {
				c.want(r, !strings.Contains(p, "*") && !strings.HasPrefix(p, "iam.") && !strings.HasSuffix(p, "IamPolicy"),
					"it has the permission %s", p)
			}
			continue
		}
		if !strings.Contains(r.Type, "_iam_") {
			continue
		}
		role, member := r.Values.text("role"), r.Values.text("member")
		own := strings.HasPrefix(role, "google_project_iam_custom_role.")
		c.want(r, own || slices.Contains(googlesRoles, role), "the role %q is none of a few permissions", role)
		c.want(r, member != "allUsers" && member != "allAuthenticatedUsers", "everyone is granted the role %q", role)
		c.want(r, !strings.HasSuffix(r.Type, "_iam_binding") && !strings.HasSuffix(r.Type, "_iam_policy"),
			"it removes the grants of others")
	}
	for _, r := range c.d.of("google_service_account_key") {
		c.add(r, "an account has a key")
	}
}

func (c *checker) buckets() {
	for _, b := range c.d.of("google_storage_bucket") {
		v := b.Values
		c.want(b, v.text("public_access_prevention") == "enforced" && v["uniform_bucket_level_access"] == true,
			"objects can be made public")
		soft := v.blocks("soft_delete_policy")
		c.want(b, len(soft) == 1 && soft[0].number("retention_duration_seconds") == 0,
			"deleted objects are billed for 7 days more")
		if v.text("name") == "acme-rollout" {
			c.want(b, v.block("versioning")["enabled"] == true, "it keeps no versions")
			c.want(b, v["force_destroy"] == false, "terraform destroy would delete what people stored")
			continue
		}
		c.want(b, v["force_destroy"] == true, "terraform destroy stops at it")
	}
	for _, f := range c.d.of("google_firestore_database") {
		c.want(f, f.Values.text("deletion_policy") == "ABANDON" &&
			f.Values.text("delete_protection_state") == "DELETE_PROTECTION_ENABLED",
			"terraform destroy would delete the documents")
	}
}

func (c *checker) services() {
	image := imagePrograms(c.t)
	for _, s := range c.d.of("google_cloud_run_v2_service") {
		v, template := s.Values, s.Values.block("template")
		c.want(s, v["deletion_protection"] == false, "terraform destroy stops at it")
		limit := seconds(template.text("timeout"))
		c.want(s, limit > 540 && limit <= 600,
			"a request may take %d s; functions hand back after 540 s, and Pub/Sub waits for 600 s", limit)
		command := template.block("containers").texts("command")
		c.want(s, len(command) == 1 && slices.Contains(image, command[0]),
			"the image has no program %q, but %q", command, image)
	}
}

// imagePrograms returns the programs that the functions' image has, as its Dockerfile builds
// them from folders that exist.
func imagePrograms(t *testing.T) (programs []string) {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`go build .*-o /layer(/\S+) (\./\S+)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat("../../" + m[2] + "/main.go"); err != nil {
			t.Errorf("the Dockerfile builds %s: %v", m[2], err)
		}
		programs = append(programs, m[1])
	}
	return programs
}

// zonesOf are the zones that have a machine type of the series, as answers has them.
var zonesOf = map[string][]string{
	"g2": {"us-central1-a", "us-central1-b", "us-central1-c"},
	"a2": {"us-central1-a"},
	"a3": {"us-central1-a"},

	"a3ultra": {"us-central1-a"},

	"n2":  {"us-central1-a", "us-central1-f"},
	"n2d": {"us-central1-a"},
	"c2":  {"us-central1-a"},
}

var driver = regexp.MustCompile(`nvidia-(\d+)$`)

func (c *checker) machines() {
	for _, g := range c.d.of("google_compute_region_instance_group_manager") {
		v := g.Values
		name := v.text("name")
		series := name[strings.LastIndex(name, "-")+1:]
		zones := v.texts("distribution_policy_zones")
		slices.Sort(zones)
		c.want(g, slices.Equal(zones, zonesOf[series]),
			"it takes the zones %v, and %v have its machines", zones, zonesOf[series])
		update := v.block("update_policy")
		c.want(g, v.text("distribution_policy_target_shape") == "ANY" &&
			update.text("instance_redistribution_type") == "NONE", "it waits for zones that have no machines, or balances them")
		c.want(g, update.text("type") == "OPPORTUNISTIC", "a deployment would replace working machines")
	}
	for _, m := range c.d.of("google_compute_region_instance_template") {
		v := m.Values
		series, _, _ := strings.Cut(v.text("machine_type"), "-")
		gpus, trains := slices.Contains([]string{"g2", "g4", "a2", "a3"}, series), strings.Contains(m.Address, "\"trainers-")
		c.want(m, gpus != trains, "%s brings GPUs: %v, and its pool trains: %v", v.text("machine_type"), gpus, trains)
		scheduling := v.block("scheduling")
		c.want(m, scheduling.text("provisioning_model") == "SPOT" && scheduling["preemptible"] == true &&
			scheduling.text("instance_termination_action") == "DELETE" && scheduling["automatic_restart"] == false &&
			scheduling.text("on_host_maintenance") == "TERMINATE", "it is no spot machine that is deleted at its end")
		disk := v.block("disk")
		found := driver.FindStringSubmatch(disk.text("source_image"))
		version := 0
		if found != nil {
			version, _ = strconv.Atoi(found[1])
		}
		c.want(m, trains || version >= 580, "the image %s has no driver of version 580 or later", disk.text("source_image"))
		c.want(m, disk["auto_delete"] == true, "its disk outlives it")
	}
}

// fleet checks that functions can start machines, and that machines can leave, but change
// nothing of Compute Engine themselves.
func (c *checker) fleet() {
	const (
		machines = "google_project_iam_custom_role.name(rollout_machines)"
		worker   = "google_service_account.member(rollout-worker)"
	)
	groups := c.d.of("google_compute_region_instance_group_manager")
	if len(groups) == 0 {
		return
	}
	for _, function := range []string{"coordinate", "reclaim", leaveFunction} {
		c.want(groups[0], c.granted("google_project_iam_member", "project", "acme-ml", machines,
			"google_service_account.member(rollout-"+function+")"), "the function %s may not change its size", function)
	}
	for _, r := range c.d {
		if strings.Contains(r.Type, "_iam_member") && r.Values.text("role") == machines {
			who := r.Values.text("member")
			c.want(r, who != worker, "machines may change groups")
		}
		if strings.HasSuffix(r.Type, "_iam_custom_role") {
			for _, p := range r.Values.texts("permissions") {
				compute := strings.HasPrefix(p, "compute.")
				c.want(r, !compute || r.Values.text("role_id") == "rollout_machines" &&
					(p == "compute.instanceGroupManagers.get" || p == "compute.instanceGroupManagers.update"),
					"it has the permission %s", p)
			}
		}
	}
	for _, s := range c.d.of("google_cloud_run_v2_service") {
		if s.Values.text("name") != "rollout-"+leaveFunction {
			continue
		}
		c.want(s, slices.Equal(s.Values.texts("custom_audiences"), []string{leaveAudience}),
			"it refuses the tokens of machines")
		c.want(s, s.Values.text("ingress") == "INGRESS_TRAFFIC_ALL", "machines with external addresses can't reach it")
		c.want(s, c.granted("google_cloud_run_v2_service_iam_member", "name", s.Values.text("name"),
			"google_project_iam_custom_role.name(rollout_call)", worker), "machines may not call it")
		for _, m := range c.d.of("google_compute_region_instance_template") {
			metadata, _ := m.Values["metadata"].(map[string]any)
			script, _ := metadata["startup-script"].(string)
			c.want(m, metadata["rollout-leave"] == s.Values.text("uri") &&
				strings.Contains(script, "export ROLLOUT_AUDIENCE='"+leaveAudience+"'"),
				"its machines do not know how to leave")
		}
		return
	}
	c.add(groups[0], "there is no function by which its machines leave")
}

func (c *checker) jobs() {
	var objects []string
	for _, o := range c.d.of("google_storage_bucket_object") {
		objects = append(objects, "/programs/"+o.Values.text("name"))
	}
	for _, j := range c.d.of("google_cloud_run_v2_job") {
		for _, function := range []string{host.CoordinateFunction, host.ReclaimFunction} {
			c.want(j, c.granted("google_cloud_run_v2_job_iam_member", "name", j.Values.text("name"),
				"google_project_iam_custom_role.name(rollout_tasks)",
				"google_service_account.member(rollout-"+function+")"), "%s may not run its tasks", function)
		}
		c.want(j, j.Values.block("template").number("parallelism") <= 0, // -1: it is not set
			"executions of fewer tasks than its parallelism are refused")
		task := j.Values.block("template", "template")
		container := task.block("containers")
		c.want(j, j.Values["deletion_protection"] == false, "terraform destroy stops at it")
		c.want(j, seconds(task.text("timeout")) <= 3600, "a task may take an hour at most, not %s", task.text("timeout"))
		c.want(j, task["gpu_zonal_redundancy_disabled"] == true, "a job can't have GPUs in several zones")
		// Public images of engines have bash and Python.
		c.want(j, slices.Equal(container.texts("command"), []string{"bash"}),
			"the image may lack %v", container.texts("command"))
		for _, argument := range container.texts("args") {
			c.want(j, slices.Contains(objects, argument), "%s is not in the bucket of programs", argument)
		}
	}
}

// seconds returns the seconds of a duration such as "600s", or -1.
func seconds(text string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "s"))
	if err != nil || !strings.HasSuffix(text, "s") {
		return -1
	}
	return n
}
