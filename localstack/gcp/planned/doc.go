// Package planned reads what Terraform would make of infra/gcp: the planned values of all
// resources and outputs, as `tofu show -json` prints them. A plan without a project makes
// up what Google computes, as the text "TYPE.ATTRIBUTE(NAME)"; Resolve replaces these
// references.
//
//	rollout.toml ──infra/gcp──▶ settings ──tofu plan──▶ plan ──tofu show──▶ Deployment
package planned
