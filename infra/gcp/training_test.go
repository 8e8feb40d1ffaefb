package main

import (
	"slices"
	"strings"
	"testing"
)

// trainingPool has processors alone.
const trainingPool = "[[pool]]\nname = \"trainers\"\nmodel = \"rollout/tiny\"\nexecutor = \"train\"\n"

// trainer is the account of the machines that train.
const trainer = "google_service_account.member(rollout-trainer)"

// newTrainingWorkspace is newWorkspace with a training pool, and with people.
func newTrainingWorkspace(t *testing.T) workspace {
	t.Helper()
	s, _, err := readSettings("rollout.toml", []byte(testConfig+trainingPool))
	if err != nil {
		t.Fatal(err)
	}
	return newWorkspace(t, map[string]any{"settings": s, "viewers": []string{"user:viewer@acme.com"},
		"operators": []string{"user:operator@acme.com"}})
}

// granted returns what a member may do: roles with what they are about.
func (d deployment) granted(member string) (grants []string) {
	for _, r := range d {
		if !strings.Contains(r.Type, "_iam_member") || r.Values.text("member") != member {
			continue
		}
		v := r.Values
		about := bare(v.text("bucket") + v.text("topic") + v.text("subscription") + v.text("name"))
		_, objects, limited := strings.Cut(v.block("condition").text("expression"), "/objects/team-a/")
		if limited {
			var keys []string
			for part := range strings.SplitSeq(objects, "/objects/team-a/") {
				key, _, _ := strings.Cut(part, "\"")
				keys = append(keys, key)
			}
			about = strings.Join(keys, " ")
		}
		role := strings.TrimPrefix(bare(v.text("role")), "rollout_")
		grants = append(grants, strings.TrimSpace(role+" "+about))
	}
	slices.Sort(grants)
	return grants
}

// bare returns the name in a reference of the plan, such as the topic of
// "google_pubsub_topic.id(rollout-plan)". Another text is itself.
func bare(reference string) string {
	if _, name, ok := strings.Cut(reference, "("); ok {
		return strings.TrimSuffix(name, ")")
	}
	return reference
}

// Machines that train have an account of their own, which keeps snapshots and may do nothing
// that a training does not need. The account of other machines may not remove snapshots.
func TestTrainingMachinesHaveAnAccountOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := newTrainingWorkspace(t).planned(t)
	for _, v := range violations(t, d) {
		t.Error(v)
	}
	want := []string{
		"bucket_see acme-rollout",
		"call rollout-leave",
		"documents_read", "documents_remove", "documents_write",
		"objects_create work/ pending/ cas/",
		"objects_list acme-rollout",
		"objects_list acme-rollout-programs",
		"objects_read acme-rollout-programs",
		"objects_read prompts/ work/ pending/ cas/",
		"objects_remove pending/ cas/",
		"receive rollout-urgent-trainers", "receive rollout-work-trainers",
		"roles/pubsub.publisher rollout-coordinate",
		"roles/pubsub.publisher rollout-urgent-trainers-dead", "roles/pubsub.publisher rollout-work-trainers-dead",
	}
	if got := d.granted(trainer); !slices.Equal(got, want) {
		t.Errorf("machines that train have the grants\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, g := range d.granted("google_service_account.member(rollout-worker)") {
		if strings.Contains(g, "trainers") || strings.HasPrefix(g, "documents_remove") ||
			strings.HasPrefix(g, "objects_remove") && strings.Contains(g, "cas/") {
			t.Errorf("machines that answer prompts have the grant %s", g)
		}
	}
	for person, prunes := range map[string]bool{"user:viewer@acme.com": false, "user:operator@acme.com": true} {
		got := d.granted(person)
		if !slices.Contains(got, "objects_read prompts/ work/ runs/ rollout-installation.json models/ cas/") {
			t.Errorf("%s can't restore a snapshot: %q", person, got)
		}
		for _, grant := range []string{"objects_remove cas/", "documents_remove"} {
			if slices.Contains(got, grant) != prunes {
				t.Errorf("%s has the grant %s: %v, want %v", person, grant, !prunes, prunes)
			}
		}
	}
}

// Without a training pool there is no such account, and nobody has rights to snapshots.
func TestRightsToSnapshotsComeWithATrainingPool(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, map[string]any{"viewers": []string{"user:viewer@acme.com"},
		"operators": []string{"user:operator@acme.com"}}).planned(t)
	if got := d.granted(trainer); len(got) > 0 {
		t.Errorf("an account that no machine has may %q", got)
	}
	for _, person := range []string{"user:viewer@acme.com", "user:operator@acme.com"} {
		for _, g := range d.granted(person) {
			if strings.Contains(g, "cas/") || strings.HasPrefix(g, "documents_remove") {
				t.Errorf("%s may %s", person, g)
			}
		}
	}
}

// A training needs processors, a system and the worker.
func TestTrainingMachinesHaveNoGPUs(t *testing.T) {
	t.Parallel()
	d := newTrainingWorkspace(t).planned(t)
	var series []string
	for _, m := range d.of("google_compute_region_instance_template") {
		if !strings.Contains(m.Address, "\"trainers-") {
			continue
		}
		v, disk := m.Values, m.Values.block("disk")
		one, _, _ := strings.Cut(v.text("machine_type"), "-")
		series = append(series, one)
		if got := disk.text("source_image"); got != "projects/debian-cloud/global/images/family/debian-12" ||
			disk.number("disk_size_gb") != 30 || disk.text("disk_type") != "pd-balanced" {
			t.Errorf("%s has the disk %v", m.Address, disk)
		}
		if got := v.block("service_account").text("email"); got != "google_service_account.email(rollout-trainer)" {
			t.Errorf("%s has the account %s", m.Address, got)
		}
		script, _ := v["metadata"].(map[string]any)["startup-script"].(string)
		if !strings.Contains(script, "export ROLLOUT_MODEL='rollout/tiny'\n") ||
			!strings.Contains(script, "export ROLLOUT_POOL='trainers'\n") {
			t.Errorf("%s has the script %.600s", m.Address, script)
		}
	}
	slices.Sort(series)
	if !slices.Equal(series, []string{"c2", "n2", "n2d"}) {
		t.Errorf("the groups are of the series %q", series)
	}
}
