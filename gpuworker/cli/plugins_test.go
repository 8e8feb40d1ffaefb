package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/host"
)

// Only the installation's own machine reloads plugins: other machines say that they don't.
func TestHotReloadIsIgnoredElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags flags
		want  bool
	}{
		"own machine": {flags{dir: "d", hotReload: true}, true},
		"not asked":   {flags{dir: "d"}, false},
		"joined":      {flags{join: "there:1", hotReload: true}, false},
		"cloud":       {flags{cloud: "aws", hotReload: true}, false},
	} {
		var log bytes.Buffer
		got := c.flags.reloads(t.Context(), &workplace{ports: host.Ports{Log: slog.New(slog.NewTextHandler(&log, nil))}})
		if got != c.want || strings.Contains(log.String(), "--hot-reload is ignored") != (c.flags.hotReload && !c.want) {
			t.Errorf("%s: %v, and the log has %q", name, got, log.String())
		}
	}
}

func TestInstallationsInACloudHaveNoPlugins(t *testing.T) {
	t.Parallel()
	_, err := flags{cloud: "aws", plugins: []string{"x"}}.withPlugins(config.Deployment{})
	if err == nil || !strings.Contains(err.Error(), "an installation in a cloud has no plugins") {
		t.Errorf("%v", err)
	}
	if _, err := (flags{cloud: "aws"}).withPlugins(config.Deployment{}); err != nil {
		t.Error(err)
	}
}
