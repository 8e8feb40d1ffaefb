package main

import (
	"math/big"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// answer is what a data source of a type answers to the arguments Where.
type answer struct {
	Type   string            `json:"type"`
	Where  map[string]string `json:"where"`
	Values map[string]any    `json:"values"`
}

// answerTo returns the values of the first answer that fits the arguments, or nil.
func (s *server) answerTo(dataSource string, asked tftypes.Value) (map[string]any, error) {
	var arguments map[string]tftypes.Value
	if err := asked.As(&arguments); err != nil {
		return nil, err
	}
next:
	for _, a := range s.answers {
		if a.Type != dataSource {
			continue
		}
		for name, want := range a.Where {
			var have string
			if err := arguments[name].As(&have); err != nil || have != want {
				continue next
			}
		}
		return a.Values, nil
	}
	return nil, nil
}

// change returns a value in which fill replaced the computed attributes that have no value.
func change(schema *tfprotov5.Schema, v *tfprotov5.DynamicValue, fill func(*tfprotov5.SchemaAttribute) tftypes.Value) (
	*tfprotov5.DynamicValue, error,
) {
	t := schema.ValueType()
	value, err := v.Unmarshal(t)
	if err != nil || value.IsNull() {
		return v, err // a resource that is destroyed has none
	}
	var fields map[string]tftypes.Value
	if err := value.As(&fields); err != nil {
		return nil, err
	}
	for _, a := range schema.Block.Attributes {
		if a.Computed && fields[a.Name].IsNull() {
			fields[a.Name] = fill(a)
		}
	}
	out, err := tfprotov5.NewDynamicValue(t, tftypes.NewValue(t, fields))
	return &out, err
}

// madeUp returns a text that says which attribute of which resource it stands for. Example:
// "google_service_account.email(rollout-plan)".
func madeUp(resource, attribute string, given tftypes.Value) string {
	var fields map[string]tftypes.Value
	text := resource + "." + attribute
	if err := given.As(&fields); err != nil {
		return text
	}
	for _, name := range []string{"name", "account_id", "role_id", "secret_id"} {
		var id string
		if v, ok := fields[name]; ok && v.IsKnown() && v.As(&id) == nil && id != "" {
			return text + "(" + id + ")"
		}
	}
	return text
}

// makeUp returns a value of the type, of a resource, without anything unknown.
func makeUp(resource string, t tftypes.Type, v *tfprotov5.DynamicValue) (*tfprotov5.DynamicValue, error) {
	planned, err := v.Unmarshal(t)
	if err != nil {
		return nil, err
	}
	made, err := tftypes.Transform(planned, func(at *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		switch {
		case v.IsKnown():
			return v, nil
		case v.Type().Is(tftypes.String):
			return tftypes.NewValue(v.Type(), madeUp(resource, lastName(at), planned)), nil
		}
		return tftypes.NewValue(v.Type(), nil), nil
	})
	if err != nil {
		return nil, err
	}
	out, err := tfprotov5.NewDynamicValue(t, made)
	return &out, err
}

// lastName returns the name at the end of a path, or "".
func lastName(at *tftypes.AttributePath) string {
	if name, ok := at.LastStep().(tftypes.AttributeName); ok {
		return string(name)
	}
	return ""
}

// valueOf returns a value of JSON as one of the type. A dynamic type becomes what the value
// is.
func valueOf(t tftypes.Type, v any) tftypes.Value {
	dynamic := t.Is(tftypes.DynamicPseudoType)
	switch v := v.(type) {
	case string:
		return tftypes.NewValue(tftypes.String, v)
	case bool:
		return tftypes.NewValue(tftypes.Bool, v)
	case float64:
		return tftypes.NewValue(tftypes.Number, big.NewFloat(v))
	case []any:
		element := tftypes.Type(tftypes.DynamicPseudoType)
		if list, ok := t.(tftypes.List); ok {
			element = list.ElementType
		}
		values, types := make([]tftypes.Value, len(v)), make([]tftypes.Type, len(v))
		for i := range v {
			values[i] = valueOf(element, v[i])
			types[i] = values[i].Type()
		}
		if dynamic {
			t = tftypes.Tuple{ElementTypes: types}
		}
		return tftypes.NewValue(t, values)
	case map[string]any:
		values, types := map[string]tftypes.Value{}, map[string]tftypes.Type{}
		for name := range v {
			values[name] = valueOf(tftypes.DynamicPseudoType, v[name])
			types[name] = values[name].Type()
		}
		return tftypes.NewValue(tftypes.Object{AttributeTypes: types}, values)
	}
	return tftypes.NewValue(t, nil)
}
