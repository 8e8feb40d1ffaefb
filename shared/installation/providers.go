package installation

import (
	"fmt"
	"strings"

	"rollout/shared/aws"
	"rollout/shared/cloud"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

// Providers returns the clouds that this program can open. To add a cloud, add
// its provider here; see package cloud.
func Providers() []cloud.Provider {
	return []cloud.Provider{
		aws.Provider{},
		gcp.Provider{},
	}
}

// ProviderNames returns the names of Providers, separated by commas, for flags
// and messages.
func ProviderNames() string {
	var names []string
	for _, p := range Providers() {
		names = append(names, p.Name())
	}
	return strings.Join(names, ", ")
}

// ProviderOf returns the provider with that name. An unknown name is Invalid.
func ProviderOf(name string) (cloud.Provider, error) {
	for _, p := range Providers() {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.32q is not a provider of this version", name),
		Remedy: "use one of: " + ProviderNames()}
}

// ShouldSuggestDoctor reports whether `rollout cloud doctor` may help with an
// error: the error comes from a cloud's service and lacks a remedy.
func ShouldSuggestDoctor(err error) bool {
	if fault.RemedyOf(err) != "" {
		return false
	}
	for _, p := range Providers() {
		if p.IsServiceError(err) {
			return true
		}
	}
	return false
}
