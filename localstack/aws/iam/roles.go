package iam

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Account is the one that roles are in.
const Account = "000000000000"

// Roles are those of a stack's functions and machines, and the policies that it
// has for people.
type Roles struct {
	functions, machines map[string]Policy // by the physical name of the function, and of the group
	people              map[string]Policy // by the policy's name
}

// Function returns what the function of that name may do.
func (r Roles) Function(name string) (Policy, bool) {
	p, ok := r.functions[name]
	return p, ok
}

// Machine returns what the machines of the group of that name may do.
func (r Roles) Machine(group string) (Policy, bool) {
	p, ok := r.machines[group]
	return p, ok
}

// User returns what somebody may do who has the policy of that name.
func (r Roles) User(policy string) (Policy, bool) {
	p, ok := r.people[policy]
	return p, ok
}

// Policy are the statements of a role.
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

// ReadTemplate reads the roles out of a template.
func ReadTemplate(template []byte) (Roles, error) {
	var t struct{ Resources map[string]resource }
	if err := json.Unmarshal(template, &t); err != nil {
		return Roles{}, fmt.Errorf("read the template: %w", err)
	}
	r := Roles{map[string]Policy{}, map[string]Policy{}, map[string]Policy{}}
	for id, at := range t.Resources {
		var role, name string
		into := r.functions
		switch at.Type {
		case "AWS::Lambda::Function":
			name, role = text(at.Properties["FunctionName"]), named(at.Properties["Role"])
		case "AWS::EC2::LaunchTemplate":
			into, name = r.machines, text(at.Properties["LaunchTemplateName"])
			profile := t.Resources[named(dig(at.Properties, "LaunchTemplateData", "IamInstanceProfile", "Arn"))]
			if roles := list(profile.Properties["Roles"]); len(roles) == 1 {
				role = named(roles[0])
			}
		case "AWS::IAM::ManagedPolicy":
			policy, err := statements(at.Properties)
			if err != nil {
				return Roles{}, fmt.Errorf("read the policy %s: %w", id, err)
			}
			r.people[text(at.Properties["ManagedPolicyName"])] = policy
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
		into[name] = policy
	}
	return r, nil
}

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

// statements are those of what has a PolicyDocument.
func statements(of any) (out Policy, err error) {
	for _, s := range list(dig(of, "PolicyDocument", "Statement")) {
		st := statement{id: text(dig(s, "Sid")), deny: text(dig(s, "Effect")) == "Deny", actions: texts(dig(s, "Action")), resources: texts(dig(s, "Resource")),
			conditions: map[string]map[string][]string{}}
		conditions, _ := dig(s, "Condition").(map[string]any)
		for operator, keys := range conditions {
			if !slices.Contains(slices.Collect(maps.Keys(operators)), operator) {
				return nil, fmt.Errorf("statement %s: the operator %s is not known here", st.id, operator)
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

// dig returns what is in x below the names.
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

func list(x any) []any {
	switch x := x.(type) {
	case nil:
		return nil
	case []any:
		return x
	}
	return []any{x}
}

func texts(x any) (out []string) {
	for _, e := range list(x) {
		out = append(out, text(e))
	}
	return out
}

// named is the id of the resource that a reference is to.
func named(x any) string {
	if get := list(dig(x, "Fn::GetAtt")); len(get) == 2 {
		return text(get[0])
	}
	return text(dig(x, "Ref"))
}

// text works a value out, as CloudFormation would in the account.
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
