package config

import "testing"

func TestImagesOfPrivateRegistriesAreKnown(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]PrivateImage{
		"123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm": {
			"123456789012.dkr.ecr.us-east-1.amazonaws.com", "123456789012", "us-east-1", "vllm"},
		"123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/vllm:v1": {
			"123456789012.dkr.ecr.eu-west-1.amazonaws.com", "123456789012", "eu-west-1", "team/vllm"},
		"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/vllm@sha256:00": {
			"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "123456789012", "us-gov-west-1", "vllm"},
		"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/vllm:v1": {
			"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "123456789012", "cn-north-1", "vllm"},
		"public.ecr.aws/team/vllm:v1":                                    {},
		"vllm/vllm-openai:v0.21.0-cu129":                                 {},
		"12.dkr.ecr.x.amazonaws.com/vllm":                                {},
		"evil.example/123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm": {},
	} {
		got, ok := PoolMachines{EngineImage: image}.PrivateImage()
		if got != want || ok != (want != PrivateImage{}) {
			t.Errorf("%s is in %+v, want %+v", image, got, want)
		}
	}
}
