package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/record"
)

func TestPluginsOfAConfigAreResolvedAndPinned(t *testing.T) {
	t.Parallel()
	dir := builtinFolder(t, "a")
	configured := config.DefaultPlugin()
	configured.Path, configured.Batch = filepath.Base(dir), 7
	d := config.Deployment{}.WithPlugin("a", configured)
	got, err := Resolve(d, filepath.Dir(dir), []string{builtinFolder(t, "b")})
	if err != nil {
		t.Fatal(err)
	}
	a, b := got.Plugins["a"], got.Plugins["b"]
	if a.Path != dir || a.Batch != 7 || a.Version != "1" || len(a.ContentID) != 64 {
		t.Errorf("%+v", a)
	}
	if b.Version != "1" || b.Concurrency != config.DefaultPlugin().Concurrency {
		t.Errorf("%+v", b)
	}
	if d.Plugins["a"].Path == dir {
		t.Error("the config itself was changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(got, "/", nil); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "content id") {
		t.Errorf("files that have changed: %v", err)
	}
	if _, err := Resolve(d, "/", []string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "--plugin") {
		t.Errorf("a folder without a plugin: %v", err)
	}
}

// A worker that has joined takes nothing from the folders of the other machine, and trusts nothing
// because that machine does.
func TestPluginsOfAnotherMachineAreThoseOfTheCommandLine(t *testing.T) {
	t.Parallel()
	there := config.DefaultPlugin()
	there.Path, there.Trusted, there.Batch = "/there/a", true, 7
	here := builtinFolder(t, "a")
	got, err := Elsewhere(config.Deployment{}.WithPlugin("a", there).WithPlugin("b", there), []string{here})
	if err != nil {
		t.Fatal(err)
	}
	a := got.Plugins["a"]
	if len(got.Plugins) != 1 || a.Path != here || a.Trusted || a.Batch != 7 {
		t.Errorf("%+v", got.Plugins)
	}
}

func TestHostsRefuseRunsOfOtherPlugins(t *testing.T) {
	t.Parallel()
	cfg := at(builtinFolder(t, "a"))
	registry := registryOf("a", nil)
	s, err := Read(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pin    record.PluginPin
		reload bool
		want   string
	}{
		"the same":       {record.PluginPin{Name: "a", Version: "1", Content: s.ContentID.String()}, false, ""},
		"any":            {record.PluginPin{Name: "a"}, false, ""},
		"missing":        {record.PluginPin{Name: "b"}, false, "this worker has no plugin b"},
		"an older one":   {record.PluginPin{Name: "a", Version: "0"}, false, `began with version "0" of the plugin a`},
		"other files":    {record.PluginPin{Name: "a", Version: "1", Content: "00"}, false, "other files of the plugin a"},
		"in development": {record.PluginPin{Name: "a", Version: "0"}, true, ""},
	} {
		h := open(t, map[string]config.Plugin{"a": cfg}, Options{Builtins: registry, HotReload: c.reload})
		err := h.Check(c.pin)
		if fault.Is(err, fault.Denied) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	var none *Host
	if err := none.Check(record.PluginPin{Name: "a"}); !fault.Is(err, fault.Denied) {
		t.Errorf("a worker without plugins: %v", err)
	}
}
