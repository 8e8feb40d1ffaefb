package installation

import (
	"fmt"
	"strings"

	"rollout/shared/aws"
	"rollout/shared/cloud"
	"rollout/shared/fault"
)

// Providers lists the clouds that this program can open. A further cloud adds its
// line here; see package cloud.
func Providers() []cloud.Provider {
	return []cloud.Provider{
		aws.Provider{},
	}
}

// ProviderNames are the names of Providers, for flags and messages.
func ProviderNames() string {
	var names []string
	for _, p := range Providers() {
		names = append(names, p.Name())
	}
	return strings.Join(names, ", ")
}

// ProviderOf returns the provider of that name. Any other name is Invalid.
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
// error: a cloud's service refused something, and the error has no remedy.
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
