package main

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// server is the provider. Requests that OpenTofu does not make for plan and apply, such as
// those of imports, panic.
type server struct {
	tfprotov5.ProviderServer
	schemas schemas
	answers []answer
	known   bool // a plan makes up what is computed
}

// providerArguments are the arguments of the provider itself.
func providerArguments() *tfprotov5.SchemaBlock {
	b := &tfprotov5.SchemaBlock{}
	for name, t := range map[string]tftypes.Type{
		"project": tftypes.String, "region": tftypes.String, "billing_project": tftypes.String,
		"user_project_override": tftypes.Bool, "default_labels": tftypes.Map{ElementType: tftypes.String},
	} {
		b.Attributes = append(b.Attributes, &tfprotov5.SchemaAttribute{Name: name, Type: t, Optional: true})
	}
	return b
}

// GetMetadata lists the types; see tfprotov5.ProviderServer.
func (s *server) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	out := &tfprotov5.GetMetadataResponse{ServerCapabilities: &tfprotov5.ServerCapabilities{}}
	for name := range maps.Keys(s.schemas.resources) {
		out.Resources = append(out.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	for name := range maps.Keys(s.schemas.data) {
		out.DataSources = append(out.DataSources, tfprotov5.DataSourceMetadata{TypeName: name})
	}
	return out, nil
}

// GetProviderSchema returns all schemas; see tfprotov5.ProviderServer.
func (s *server) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (
	*tfprotov5.GetProviderSchemaResponse, error,
) {
	return &tfprotov5.GetProviderSchemaResponse{
		Provider:          &tfprotov5.Schema{Block: providerArguments()},
		ResourceSchemas:   s.schemas.resources,
		DataSourceSchemas: s.schemas.data,
	}, nil
}

// PrepareProviderConfig accepts every configuration; see tfprotov5.ProviderServer.
func (s *server) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (
	*tfprotov5.PrepareProviderConfigResponse, error,
) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

// ConfigureProvider does nothing; see tfprotov5.ProviderServer.
func (s *server) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (
	*tfprotov5.ConfigureProviderResponse, error,
) {
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

// StopProvider does nothing; see tfprotov5.ProviderServer.
func (s *server) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (
	*tfprotov5.StopProviderResponse, error,
) {
	return &tfprotov5.StopProviderResponse{}, nil
}

// ValidateResourceTypeConfig accepts all values; OpenTofu has checked names and types.
func (s *server) ValidateResourceTypeConfig(context.Context, *tfprotov5.ValidateResourceTypeConfigRequest) (
	*tfprotov5.ValidateResourceTypeConfigResponse, error,
) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

// ValidateDataSourceConfig accepts all values; OpenTofu has checked names and types.
func (s *server) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (
	*tfprotov5.ValidateDataSourceConfigResponse, error,
) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

// UpgradeResourceState reads a state of the same schema; see tfprotov5.ProviderServer.
func (s *server) UpgradeResourceState(_ context.Context, r *tfprotov5.UpgradeResourceStateRequest) (
	*tfprotov5.UpgradeResourceStateResponse, error,
) {
	t := s.schemas.resources[r.TypeName].ValueType()
	state, err := r.RawState.Unmarshal(t)
	if err != nil {
		return nil, err
	}
	out, err := tfprotov5.NewDynamicValue(t, state)
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &out}, err
}

// ReadResource finds a resource as the state has it; see tfprotov5.ProviderServer.
func (s *server) ReadResource(_ context.Context, r *tfprotov5.ReadResourceRequest) (
	*tfprotov5.ReadResourceResponse, error,
) {
	return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, nil
}

// PlanResourceChange leaves what the provider computes for a new resource unknown; see
// tfprotov5.ProviderServer.
func (s *server) PlanResourceChange(_ context.Context, r *tfprotov5.PlanResourceChangeRequest) (
	*tfprotov5.PlanResourceChangeResponse, error,
) {
	schema := s.schemas.resources[r.TypeName]
	prior, err := r.PriorState.Unmarshal(schema.ValueType())
	if err != nil || !prior.IsNull() {
		return &tfprotov5.PlanResourceChangeResponse{PlannedState: r.ProposedNewState}, err
	}
	planned, err := change(schema, r.ProposedNewState,
		func(a *tfprotov5.SchemaAttribute) tftypes.Value {
			return tftypes.NewValue(a.Type, tftypes.UnknownValue)
		})
	if err == nil && s.known {
		planned, err = makeUp(r.TypeName, schema.ValueType(), planned)
	}
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: planned}, err
}

// ApplyResourceChange makes up what is unknown; see tfprotov5.ProviderServer.
func (s *server) ApplyResourceChange(_ context.Context, r *tfprotov5.ApplyResourceChangeRequest) (
	*tfprotov5.ApplyResourceChangeResponse, error,
) {
	made, err := makeUp(r.TypeName, s.schemas.resources[r.TypeName].ValueType(), r.PlannedState)
	return &tfprotov5.ApplyResourceChangeResponse{NewState: made}, err
}

// ReadDataSource answers from the file of answers, and makes up what that lacks; see
// tfprotov5.ProviderServer.
func (s *server) ReadDataSource(_ context.Context, r *tfprotov5.ReadDataSourceRequest) (
	*tfprotov5.ReadDataSourceResponse, error,
) {
	schema := s.schemas.data[r.TypeName]
	asked, err := r.Config.Unmarshal(schema.ValueType())
	if err != nil {
		return nil, err
	}
	answers, err := s.answerTo(r.TypeName, asked)
	if err != nil {
		return nil, err
	}
	state, err := change(schema, r.Config, func(a *tfprotov5.SchemaAttribute) tftypes.Value {
		if given, ok := answers[a.Name]; ok {
			return valueOf(a.Type, given)
		}
		if a.Type.Is(tftypes.String) {
			return tftypes.NewValue(a.Type, madeUp(r.TypeName, a.Name, asked))
		}
		return tftypes.NewValue(a.Type, nil)
	})
	return &tfprotov5.ReadDataSourceResponse{State: state}, err
}
