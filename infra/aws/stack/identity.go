package stack

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"
)

// Identity is what an organisation demands of roles and policies. The zero value leaves the
// names of roles to CloudFormation.
type Identity struct {
	Boundary string // ARN or name of the managed policy that bounds what roles may do; "" for none
	Path     string // of roles, instance profiles and policies. Example: "/acme/"
	Prefix   string // starts the names of roles, instance profiles and policies. Example: "acme-"
}

// maxRoleName is the longest name of a role in IAM.
const maxRoleName = 64

var (
	boundaryName = regexp.MustCompile(`^(arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/)?[a-zA-Z0-9+=,.@_/-]{1,512}$`)
	iamPath      = regexp.MustCompile(`^/([a-zA-Z0-9+=,.@_-]+/)+$`)
	iamPrefix    = regexp.MustCompile(`^[a-zA-Z0-9+=,.@_-]{1,32}$`)
)

// problems returns what is wrong with the identity.
func (i Identity) problems() (problems []string) {
	for _, c := range []struct {
		name, value, remedy string
		valid               *regexp.Regexp
	}{
		{"boundary", i.Boundary, "use the ARN or the name of a managed policy", boundaryName},
		{"role_path", i.Path, "begin and end with /, such as /acme/", iamPath},
		{"role_prefix", i.Prefix, "use up to 32 letters, digits and +=,.@_-", iamPrefix},
	} {
		if c.value != "" && !c.valid.MatchString(c.value) {
			problems = append(problems, fmt.Sprintf("%s is %q: %s", c.name, c.value, c.remedy))
		}
	}
	return problems
}

// identify sets path, boundary and name of a role.
func (b *builder) identify(id string, p *awsiam.RoleProps) {
	p.Path, p.RoleName = optional(b.Identity.Path), b.roleName(id)
	if boundary := b.Identity.Boundary; boundary != "" {
		if !strings.HasPrefix(boundary, "arn:") {
			boundary = strings.Join(
				[]string{"arn", b.partition, "iam", "", b.account, "policy/" + boundary}, ":")
		}
		p.PermissionsBoundary = awsiam.ManagedPolicy_FromManagedPolicyArn(b.stack, jsii.String("Boundary-"+id), &boundary)
	}
}

// roleName returns the name of a role, or nil if there is no prefix: CloudFormation then
// makes one. Roles exist in all regions, so the name ends with the stack's region; one that
// is too long ends with a hash of the rest.
func (b *builder) roleName(id string) *string {
	if b.Identity.Prefix == "" {
		return nil
	}
	id = strings.Replace(strings.TrimPrefix(id, "Role-"), "MachineRole-", "machine-", 1)
	name := b.Identity.Prefix + b.cloud.Name + "-" + id + "-" + b.cloud.Region
	if len(name) > maxRoleName {
		const digits = 8
		name = fmt.Sprintf("%s-%.*x", name[:maxRoleName-digits-1], digits/2, sha256.Sum256([]byte(name)))
	}
	return &name
}

// identifyProfile sets path and name of the instance profile that the CDK makes for a
// launch template.
func (b *builder) identifyProfile(t awsec2.LaunchTemplate, roleID string) {
	profile := t.Node().FindChild(jsii.String("Profile")).(awsiam.CfnInstanceProfile)
	if b.Identity.Path != "" {
		profile.SetPath(&b.Identity.Path)
	}
	if name := b.roleName(roleID); name != nil {
		profile.SetInstanceProfileName(name)
	}
}

// optional returns nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
