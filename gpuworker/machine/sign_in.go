package machine

import (
	"encoding/json"
	"strings"

	"rollout/shared/config"
)

// Places of what Docker needs to fetch an image from a private registry.
const (
	dockerConfig = "etc/rollout/docker/config.json"
	// credentialHelper is the name that the config gives the program, and programFile is
	// the program, which Docker finds in PATH.
	credentialHelper = "rollout"
	programFile      = "opt/rollout/docker-credential-" + credentialHelper
)

// signIn writes a credential helper for Docker, and the config that names it for the
// registry alone. The helper asks for a password with the machine's role whenever Docker
// fetches an image, so that the password is in no file and is always valid.
func (u Units) signIn(image config.PrivateImage) error {
	settings, err := json.Marshal(map[string]any{"credHelpers": map[string]string{image.Registry: credentialHelper}})
	if err != nil {
		return err
	}
	if err := u.write(dockerConfig, 0o644, string(settings)+"\n"); err != nil {
		return err
	}
	// The registry consists of letters, digits, dots and hyphens.
	program := strings.NewReplacer("COMMAND", image.PasswordCommand(), "REGISTRY", image.Registry,
		"USER", config.PrivateImageUser).Replace(`#!/bin/sh
# Docker calls this program with "get"; it never needs to store or erase a password.
[ "$1" = get ] || exit 0
password=$(COMMAND) || exit 1
printf '{"ServerURL":"REGISTRY","Username":"USER","Secret":"%s"}\n' "$password"
`)
	return u.write(programFile, 0o755, program)
}
