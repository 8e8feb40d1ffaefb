// Package iam decides as Google Cloud's access management does what an account may do,
// as far as infra/gcp uses it: allow policies on resources, predefined and custom roles,
// and conditions on the names of resources. It is pure.
//
//	member, permission, resource ──Check──▶ allowed by a grant
//	                                        └▶ Denial, which is noted
//
// A grant can be withdrawn while programs run, so that a test sees what depends on it.
package iam
