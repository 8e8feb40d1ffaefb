package iam

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Account is the id of the roles' account.
const Account = "000000000000"

// Roles are the policies of a stack's functions, machines and users.
type Roles struct {
	functions, machines map[string]Policy // by the physical name of the function or the group
	users               map[string]Policy // by the name of the managed policy
	keys                map[string]string // ARNs, by the service and the name of what they encrypt
}

// Function returns the policy of the function of the name.
func (r Roles) Function(name string) (Policy, bool) {
	p, ok := r.functions[name]
	return p, ok
}

// Machine returns the policy of the machines of the group.
func (r Roles) Machine(group string) (Policy, bool) {
	p, ok := r.machines[group]
	return p, ok
}

// User returns the managed policy of the name, for users.
func (r Roles) User(policy string) (Policy, bool) {
	p, ok := r.users[policy]
	return p, ok
}

// Policy is a list of statements.
type Policy []statement

type statement struct {
	id                 string
	deny               bool
	actions, resources []string
	conditions         map[string]map[string][]string
}

type resource struct {
	Type       string
	Properties map[string]any
}

// ReadTemplate reads the roles from a CloudFormation template in JSON. Further ones have more
// statements for roles and policies of the first, and the keys of its buckets, queues and
// tables.
func ReadTemplate(template []byte, more ...[]byte) (Roles, error) {
	var t struct{ Resources map[string]resource }
	if err := json.Unmarshal(template, &t); err != nil {
		return Roles{}, fmt.Errorf("read the template: %w", err)
	}
	for _, text := range more {
		if err := extend(t.Resources, text); err != nil {
			return Roles{}, err
		}
	}
	r := Roles{map[string]Policy{}, map[string]Policy{}, map[string]Policy{}, map[string]string{}}
	for id, at := range t.Resources {
		r.readKey(at)
		var role, name string
		target := r.functions
		switch at.Type {
		case "AWS::Lambda::Function":
			name, role = text(at.Properties["FunctionName"]), referenced(at.Properties["Role"])
		case "AWS::EC2::LaunchTemplate":
			target, name = r.machines, text(at.Properties["LaunchTemplateName"])
			profile := t.Resources[referenced(dig(at.Properties, "LaunchTemplateData", "IamInstanceProfile", "Arn"))]
			if roles := list(profile.Properties["Roles"]); len(roles) == 1 {
				role = referenced(roles[0])
			}
		case "AWS::IAM::ManagedPolicy":
			policy, err := statements(at.Properties)
			if err != nil {
				return Roles{}, fmt.Errorf("read the policy %s: %w", id, err)
			}
			r.users[text(at.Properties["ManagedPolicyName"])] = policy
			continue
		default:
			continue
		}
		found, ok := t.Resources[role]
		if !ok || name == "" {
			return Roles{}, fmt.Errorf("read the template: %s has no role", id)
		}
		policy, err := policies(found)
		if err != nil {
			return Roles{}, fmt.Errorf("read the role of %s: %w", id, err)
		}
		target[name] = policy
	}
	return r, nil
}

// extend adds to the resources what another template has of them.
func extend(resources map[string]resource, template []byte) error {
	var t struct{ Resources map[string]resource }
	if err := json.Unmarshal(template, &t); err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	for id, more := range t.Resources {
		at, ok := resources[id]
		if !ok || at.Type != more.Type {
			return fmt.Errorf("the first template has no %s of the type %s", id, more.Type)
		}
		switch at.Type {
		case "AWS::IAM::Role":
			at.Properties["Policies"] = slices.Concat(list(at.Properties["Policies"]), list(more.Properties["Policies"]))
		case "AWS::IAM::ManagedPolicy":
			all := slices.Concat(list(dig(at.Properties, "PolicyDocument", "Statement")),
				list(dig(more.Properties, "PolicyDocument", "Statement")))
			at.Properties["PolicyDocument"] = map[string]any{"Statement": all}
		default:
			maps.Copy(at.Properties, more.Properties)
		}
	}
	return nil
}

// policies returns the statements of a role's inline policies.
func policies(role resource) (out Policy, err error) {
	for _, p := range list(role.Properties["Policies"]) {
		in, err := statements(p)
		if err != nil {
			return nil, err
		}
		out = append(out, in...)
	}
	return out, nil
}

// statements returns the statements of the PolicyDocument in a value.
func statements(of any) (out Policy, err error) {
	for _, s := range list(dig(of, "PolicyDocument", "Statement")) {
		st := statement{id: text(dig(s, "Sid")), deny: text(dig(s, "Effect")) == "Deny", actions: texts(dig(s, "Action")),
			resources:  texts(dig(s, "Resource")),
			conditions: map[string]map[string][]string{}}
		conditions, _ := dig(s, "Condition").(map[string]any)
		for operator, keys := range conditions {
			if !slices.Contains(slices.Collect(maps.Keys(operators)), operator) {
				return nil, fmt.Errorf("statement %s has the unsupported operator %s", st.id, operator)
			}
			st.conditions[operator] = map[string][]string{}
			of, _ := keys.(map[string]any)
			for key, values := range of {
				st.conditions[operator][key] = texts(values)
			}
		}
		out = append(out, st)
	}
	return out, nil
}

// dig returns the value at the path of names in x, or nil.
func dig(x any, names ...string) any {
	for _, name := range names {
		m, ok := x.(map[string]any)
		if !ok {
			return nil
		}
		x = m[name]
	}
	return x
}

// list returns x as a list: a single value becomes a list of one.
func list(x any) []any {
	switch x := x.(type) {
	case nil:
		return nil
	case []any:
		return x
	}
	return []any{x}
}

// texts evaluates each value of a list.
func texts(x any) (out []string) {
	for _, e := range list(x) {
		out = append(out, text(e))
	}
	return out
}

// referenced returns the logical id that a reference names.
func referenced(x any) string {
	if get := list(dig(x, "Fn::GetAtt")); len(get) == 2 {
		return text(get[0])
	}
	return text(dig(x, "Ref"))
}

// text evaluates a value as CloudFormation does in the account.
func text(x any) string {
	switch x := x.(type) {
	case string:
		return x
	case bool:
		return fmt.Sprint(x)
	case map[string]any:
		switch x["Ref"] {
		case "AWS::Partition":
			return "aws"
		case "AWS::AccountId":
			return Account
		}
		if join := list(x["Fn::Join"]); len(join) == 2 {
			return strings.Join(texts(join[1]), text(join[0]))
		}
		if sub, ok := x["Fn::Sub"].(string); ok {
			return strings.NewReplacer("${AWS::Partition}", "aws", "${AWS::AccountId}", Account).Replace(sub)
		}
	}
	return ""
}
