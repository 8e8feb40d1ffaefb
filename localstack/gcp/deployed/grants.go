package deployed

import (
	"fmt"
	"strings"

	"rollout/localstack/gcp/iam"
	"rollout/localstack/gcp/planned"
)

// scopes returns the name of the resource that a grant of each type is bound to.
var scopes = map[string]func(project string, v planned.Object) string{
	"google_project_iam_member": func(_ string, v planned.Object) string {
		return "projects/" + v.Text("project")
	},
	"google_storage_bucket_iam_member": func(_ string, v planned.Object) string {
		return bucketName(v.Text("bucket"))
	},
	"google_pubsub_topic_iam_member":        func(_ string, v planned.Object) string { return v.Text("topic") },
	"google_pubsub_subscription_iam_member": func(_ string, v planned.Object) string { return v.Text("subscription") },
	"google_secret_manager_secret_iam_member": func(_ string, v planned.Object) string {
		return v.Text("secret_id")
	},
	"google_service_account_iam_member": func(_ string, v planned.Object) string {
		return v.Text("service_account_id")
	},
	"google_cloud_run_v2_service_iam_member": func(project string, v planned.Object) string {
		return serviceName(project, v.Text("location"), v.Text("name"))
	},
	"google_cloud_run_v2_job_iam_member": func(project string, v planned.Object) string {
		return "projects/" + project + "/locations/" + v.Text("location") + "/jobs/" + v.Text("name")
	},
	"google_kms_crypto_key_iam_member": func(_ string, v planned.Object) string { return v.Text("crypto_key_id") },
}

func bucketName(bucket string) string       { return "projects/_/buckets/" + bucket }
func objectName(bucket, name string) string { return bucketName(bucket) + "/objects/" + name }

func serviceName(project, region, name string) string {
	return "projects/" + project + "/locations/" + region + "/services/" + name
}

// policyOf returns the policy of a plan without references. A kind of grant that is not
// known here is an error.
func policyOf(plan planned.Deployment, project string) (*iam.Policy, error) {
	custom := map[string][]string{}
	for _, r := range plan.Of("google_project_iam_custom_role") {
		custom["projects/"+project+"/roles/"+r.Values.Text("role_id")] = r.Values.Texts("permissions")
	}
	var grants []iam.Grant
	for _, r := range plan.Resources {
		if !strings.Contains(r.Type, "_iam_") || r.Type == "google_project_iam_custom_role" {
			continue
		}
		scope := scopes[r.Type]
		if scope == nil {
			return nil, fmt.Errorf("%s: grants of the type %s are not known", r.Address, r.Type)
		}
		grants = append(grants, iam.Grant{Address: r.Address, Member: r.Values.Text("member"), Role: r.Values.Text("role"),
			Resource: scope(project, r.Values), Condition: r.Values.Block("condition").Text("expression")})
	}
	return iam.New(grants, custom)
}
