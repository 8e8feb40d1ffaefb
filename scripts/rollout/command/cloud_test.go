package command_test

import (
	"path/filepath"
	"testing"
)

func TestCommandsOfACloudNeedItsConfig(t *testing.T) {
	t.Parallel()
	laptop, cloud := t.TempDir(), t.TempDir()
	write(t, filepath.Join(laptop, "rollout.toml"), "schema_version = 1\n")
	write(t, filepath.Join(cloud, "rollout.toml"), "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\ns3.bucket = \"acme-rollout\"\n")
	bad := filepath.Join(t.TempDir(), "bad.toml")
	write(t, bad, "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregionn = \"us-east-1\"\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--cloud", "aws", "--dir", t.TempDir()}, "rollout.toml (say with --dir where the config is that was deployed"},
		{[]string{"status", "--cloud", "aws", "--dir", laptop}, "rollout.toml has no [cloud]: it is of an installation on this machine (say with --dir where"},
		{[]string{"status", "--cloud", "gcp", "--dir", cloud}, `"gcp" is no provider of this version`},
		{[]string{"status", "--dir", cloud}, "rollout.toml is of an installation in a cloud (add --cloud aws"},
		{[]string{"up", "--dir", cloud}, "rollout.toml is of an installation in a cloud (add --cloud aws"},
		{[]string{"clean", "--cloud", "aws"}, "unknown flag: --cloud"},
		{[]string{"cloud", "doctor", "--config", filepath.Join(cloud, "rollout.toml")}, "--provider is missing"},
		{[]string{"cloud", "doctor", "--provider", "gcp", "--config", filepath.Join(cloud, "rollout.toml")}, `"gcp" is no provider of this version`},
		{[]string{"cloud", "doctor", "--provider", "aws", "--config", filepath.Join(laptop, "rollout.toml")}, "rollout.toml has no [cloud]: it is of an installation on this machine (say with --config where"},
		{[]string{"cloud", "doctor", "--provider", "aws", "--config", filepath.Join(cloud, "none.toml")}, "none.toml (say with --config where the config is that was deployed"},
		{[]string{"cloud", "doctor", "--provider", "aws", "--config", bad}, "cloud.regionn: unknown key"},
		{[]string{"cloud", "doctor", "--provider", "aws", "--format", "xml"}, `--format "xml" is none: say human or json`},
		{[]string{"cloud", "physician"}, `unknown command "physician"`},
	} {
		check(t, rollout(t.Context(), c.args...), 2, "", c.want)
	}
}
