package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// schemas are those of the provider's resources and data sources, by their types.
type schemas struct{ resources, data map[string]*tfprotov5.Schema }

// attribute is an argument of schema.json. Type is "string", "number", "bool" or "dynamic",
// or a list of "list", "set" or "map" and the elements' type.
type attribute struct {
	Type                         any
	Required, Optional, Computed bool
}

// nested is a block of schema.json. Mode is "list", "set" or "single".
type nested struct {
	Mode     string
	Min, Max int64
	Block    block
}

type block struct {
	Attributes map[string]attribute
	Blocks     map[string]nested
}

// readSchemas reads schema.json.
func readSchemas(path string) (schemas, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return schemas{}, err
	}
	var in struct {
		Resources   map[string]block
		DataSources map[string]block `json:"data_sources"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return schemas{}, fmt.Errorf("read %s: %w", path, err)
	}
	out := schemas{map[string]*tfprotov5.Schema{}, map[string]*tfprotov5.Schema{}}
	for _, part := range []struct {
		from map[string]block
		to   map[string]*tfprotov5.Schema
	}{{in.Resources, out.resources}, {in.DataSources, out.data}} {
		for name, b := range part.from {
			s, err := b.schema()
			if err != nil {
				return schemas{}, fmt.Errorf("read %s: %s: %w", path, name, err)
			}
			part.to[name] = &tfprotov5.Schema{Block: s}
		}
	}
	return out, nil
}

var nesting = map[string]tfprotov5.SchemaNestedBlockNestingMode{
	"list":   tfprotov5.SchemaNestedBlockNestingModeList,
	"set":    tfprotov5.SchemaNestedBlockNestingModeSet,
	"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
}

func (b block) schema() (*tfprotov5.SchemaBlock, error) {
	out := &tfprotov5.SchemaBlock{}
	for name, a := range b.Attributes {
		t, err := typeOf(a.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out.Attributes = append(out.Attributes, &tfprotov5.SchemaAttribute{Name: name, Type: t, Required: a.Required,
			Optional: a.Optional, Computed: a.Computed})
	}
	for name, n := range b.Blocks {
		mode, ok := nesting[n.Mode]
		if !ok {
			return nil, fmt.Errorf("%s: a block can't be a %q", name, n.Mode)
		}
		inner, err := n.Block.schema()
		if err != nil {
			return nil, fmt.Errorf("%s.%w", name, err)
		}
		made := &tfprotov5.SchemaNestedBlock{TypeName: name, Nesting: mode, Block: inner}
		if n.Mode != "single" {
			made.MinItems, made.MaxItems = n.Min, n.Max
		}
		out.BlockTypes = append(out.BlockTypes, made)
	}
	return out, nil
}

var scalars = map[string]tftypes.Type{
	"string": tftypes.String, "number": tftypes.Number, "bool": tftypes.Bool, "dynamic": tftypes.DynamicPseudoType,
}

// typeOf returns the type that an attribute's Type describes.
func typeOf(described any) (tftypes.Type, error) {
	switch d := described.(type) {
	case string:
		if t, ok := scalars[d]; ok {
			return t, nil
		}
	case []any:
		if len(d) != 2 {
			break
		}
		element, err := typeOf(d[1])
		if err != nil {
			return nil, err
		}
		switch d[0] {
		case "list":
			return tftypes.List{ElementType: element}, nil
		case "set":
			return tftypes.Set{ElementType: element}, nil
		case "map":
			return tftypes.Map{ElementType: element}, nil
		}
	}
	return nil, fmt.Errorf("%v is no type", described)
}
