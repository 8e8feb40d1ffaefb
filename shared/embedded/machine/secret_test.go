package machine_test

import (
	"strings"
	"testing"

	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/secret"
	"rollout/shared/secret/secrettest"
)

// lookupIn is os.LookupEnv over a map.
func lookupIn(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := variables[name]
		return text, ok
	}
}

func TestSecretsConform(t *testing.T) {
	t.Parallel()
	secrettest.Run(t, func(_ *testing.T, allow []string, set map[string]string) secret.Store {
		variables := map[string]string{}
		for name, text := range set {
			variables["ROLLOUT_SECRET_"+strings.ReplaceAll(strings.ToUpper(name), "-", "_")] = text
		}
		return machine.EnvSecrets(allow, lookupIn(variables))
	})
}

func TestGetOfUnsetSecretNamesVariable(t *testing.T) {
	t.Parallel()
	s := machine.EnvSecrets([]string{"hf-token"}, lookupIn(map[string]string{"ROLLOUT_SECRET_HF_TOKEN": ""}))
	_, err := s.Get(t.Context(), "hf-token")
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "ROLLOUT_SECRET_HF_TOKEN") {
		t.Errorf("Get = %v, want NotFound that names the variable", err)
	}
	_, err = s.Get(t.Context(), "other")
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "allowlist") {
		t.Errorf("Get = %v, want Denied with a remedy", err)
	}
}
