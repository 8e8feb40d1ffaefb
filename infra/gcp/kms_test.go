package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	ownKey    = "projects/keys/locations/us-central1/keyRings/r/cryptoKeys/k"
	useOfKeys = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
)

// encrypted are the places of the key in resources that store something.
var encrypted = map[string]func(object) string{
	"google_storage_bucket":        func(o object) string { return o.block("encryption").text("default_kms_key_name") },
	"google_pubsub_topic":          func(o object) string { return o.text("kms_key_name") },
	"google_firestore_database":    func(o object) string { return o.block("cmek_config").text("kms_key_name") },
	"google_cloud_run_v2_service":  func(o object) string { return o.block("template").text("encryption_key") },
	"google_cloud_run_v2_job":      keyOfJob,
	"google_secret_manager_secret": keyOfSecret,
	"google_compute_region_instance_template": func(o object) string {
		return o.block("disk", "disk_encryption_key").text("kms_key_self_link")
	},
}

func keyOfJob(o object) string { return o.block("template", "template").text("encryption_key") }

func keyOfSecret(o object) string {
	return o.block("replication", "user_managed", "replicas", "customer_managed_encryption").text("kms_key_name")
}

// keys returns, for each type of encrypted, the keys that its resources have.
func (d deployment) keys() map[string][]string {
	found := map[string][]string{}
	for kind, key := range encrypted {
		for _, r := range d.of(kind) {
			found[kind] = append(found[kind], key(r.Values))
		}
		slices.Sort(found[kind])
		found[kind] = slices.Compact(found[kind])
	}
	return found
}

// keyUsers returns who may use the key, without the beginning that all of them have.
func (d deployment) keyUsers() (users []string) {
	for _, r := range d.of("google_kms_crypto_key_iam_member") {
		who := strings.TrimPrefix(r.Values.text("member"), "serviceAccount:service-27@")
		if r.Values.text("crypto_key_id") != ownKey || r.Values.text("role") != useOfKeys {
			who += " with another role or key"
		}
		users = append(users, strings.TrimSuffix(who, ".iam.gserviceaccount.com"))
	}
	slices.Sort(users)
	return users
}

// allWith returns the types of encrypted, each with the key.
func allWith(key string) map[string][]string {
	all := map[string][]string{}
	for kind := range encrypted {
		all[kind] = []string{key}
	}
	return all
}

// With a key of the user's all that is stored has it, and the agents of the services that
// store may use it: no others, and no program. Without one nothing asks for a key.
func TestAllThatIsStoredHasTheUsersKey(t *testing.T) {
	t.Parallel()
	withKey := func(more map[string]any) map[string]any {
		options := map[string]any{"kms_key": ownKey}
		for name, value := range more {
			options[name] = value
		}
		return options
	}
	everyone := []string{"compute-system", "gcp-sa-firestore", "gcp-sa-pubsub", "gcp-sa-secretmanager",
		"gs-project-accounts", "serverless-robot-prod"}
	for name, c := range map[string]struct {
		options map[string]any
		key     string
		users   []string
		absent  []string // types without resources
	}{
		"without a key": {nil, "", nil, nil},
		"with a key":    {withKey(nil), ownKey, everyone, nil},
		"without machines": {withKey(map[string]any{"gpu": false}), ownKey,
			slices.DeleteFunc(slices.Clone(everyone), func(who string) bool { return who == "compute-system" }),
			[]string{"google_cloud_run_v2_job", "google_compute_region_instance_template"}},
		"with data of an earlier deployment": {withKey(map[string]any{"gpu": false, "bucket": "existing",
			"database": "existing"}), ownKey, []string{"gcp-sa-pubsub", "gcp-sa-secretmanager", "serverless-robot-prod"},
			[]string{"google_cloud_run_v2_job", "google_compute_region_instance_template", "google_storage_bucket",
				"google_firestore_database"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newWorkspace(t, c.options).planned(t)
			want := allWith(c.key)
			for _, kind := range c.absent {
				want[kind] = nil
			}
			if d := cmp.Diff(want, d.keys()); d != "" {
				t.Errorf("keys (-want +got)\n%s", d)
			}
			if d := cmp.Diff(c.users, d.keyUsers()); d != "" {
				t.Errorf("users of the key (-want +got)\n%s", d)
			}
		})
	}
}

// dependencies plans the deployment, and returns what resources of each type say that they
// depend on, by their address in the configuration.
func (w workspace) dependencies(t *testing.T) map[string]map[string][]string {
	t.Helper()
	w.planned(t)
	out, ok := w.tofu(t, "show", "-json", "plan")
	if !ok {
		t.Fatal(out)
	}
	var in struct {
		Configuration struct {
			Root struct {
				Resources []struct {
					Address, Type string
					On            []string `json:"depends_on"`
				}
			} `json:"root_module"`
		}
	}
	if err := json.Unmarshal([]byte(out), &in); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string][]string{}
	for _, r := range in.Configuration.Root.Resources {
		if found[r.Type] == nil {
			found[r.Type] = map[string][]string{}
		}
		found[r.Type][r.Address] = r.On
	}
	return found
}

// What a service stores before its agent may use the key is refused: it waits for the grant.
func TestResourcesWithTheKeyWaitForItsGrants(t *testing.T) {
	t.Parallel()
	depends := newWorkspace(t, map[string]any{"kms_key": ownKey}).dependencies(t)
	for kind := range encrypted {
		if len(depends[kind]) == 0 {
			t.Errorf("there is no %s", kind)
		}
		for address, on := range depends[kind] {
			if !slices.Contains(on, "google_kms_crypto_key_iam_member.agent") {
				t.Errorf("%s waits for %v alone", address, on)
			}
		}
	}
}

func TestKeyOfAnotherRegionIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{strings.Replace(ownKey, "us-central1", "europe-west4", 1), "my-key",
		ownKey + "/cryptoKeyVersions/1"} {
		said := newWorkspace(t, map[string]any{"kms_key": key}).problem(t)
		if !strings.Contains(said, "Name a key of us-central1") {
			t.Errorf("%s: said %.2000q", key, said)
		}
	}
}
