package aws

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
)

// The SDK names services in its variables by other words than in their addresses.
func TestEndpointsAreThoseOfTheSDKsVariables(t *testing.T) {
	s := signed{sdk: awssdk.Config{Region: "eu-west-1"}}
	for variable, of := range map[string]remote{
		"AWS_ENDPOINT_URL_EC2":            computeService,
		"AWS_ENDPOINT_URL_SERVICE_QUOTAS": quotaService,
		"AWS_ENDPOINT_URL_SSM":            systemsManager,
	} {
		t.Setenv(variable, "")
		want := "https://" + of.name + ".eu-west-1.amazonaws.com/"
		if at, err := s.endpoint(t.Context(), of); err != nil || at != want {
			t.Errorf("without %s: %q, %v, want %q", variable, at, err, want)
		}
		t.Setenv(variable, "http://127.0.0.1:1")
		if at, err := s.endpoint(t.Context(), of); err != nil || at != "http://127.0.0.1:1/" {
			t.Errorf("with %s: %q, %v", variable, at, err)
		}
	}
}
