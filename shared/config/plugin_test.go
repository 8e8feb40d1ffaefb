package config

import (
	"strings"
	"testing"
)

func TestPluginManifestsAreRead(t *testing.T) {
	t.Parallel()
	m, err := ParsePlugin(PluginFile, []byte(`
name = "keywords"
version = "1.0.0"
kind = "grader"
trait_id = "rollout.grader.v1"
mode = "sidecar"
network_allowlist = ["api.example.com"]
[runtime]
memory_mb = 128
[entry.sidecar]
args = ["python3", "keywords.py"]
`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "keywords" || m.Runtime.MemoryMB != 128 || m.Runtime.Processes != 32 ||
		m.Entry.Sidecar.Args[1] != "keywords.py" {
		t.Errorf("%+v", m)
	}
}

func TestProblemsOfPluginManifests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src  string
		want []string // one for each problem, in order
	}{
		"nothing": {``, []string{"name: missing", "version: missing", "kind: missing: use one of grader, row-preparer",
			"mode: missing: use one of builtin, wasm, sidecar"}},
		"unknown words": {"name = \"A b\"\nversion = \"1\"\nkind = \"graders\"\nmode = \"pyo3\"\npython = 3\n",
			[]string{"python: unknown key", "name: \"A b\" is not a valid name", "kind: ", "mode: "}},
		"the entry of another mode": {"name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"wasm\"\n" +
			"[entry.sidecar]\nargs = [\"x\"]\n",
			[]string{"entry.wasm.module: missing", "entry.sidecar.args: the mode is \"wasm\": remove it"}},
		"a module elsewhere": {"name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"wasm\"\n" +
			"[entry.wasm]\nmodule = \"../x.wasm\"\n", []string{"entry.wasm.module: \"../x.wasm\" is not a file of the plugin"}},
		"a module that is not hashed": {"name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"wasm\"\n" +
			"[entry.wasm]\nmodule = \"out/.x/x.wasm\"\n",
			[]string{"entry.wasm.module: \"out/.x/x.wasm\" is not a file of the plugin"}},
		"another trait": {"name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"builtin\"\ntrait_id = \"x\"\n" +
			"[entry.builtin]\nfactory = \"a\"\n",
			[]string{"trait_id: \"x\" is not the trait of the kind grader: use \"rollout.grader.v1\""}},
		"a network without a process": {"name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"builtin\"\n" +
			"network_allowlist = [\"http://x/\"]\n[entry.builtin]\nfactory = \"a\"\n",
			[]string{"network_allowlist: a plugin of the mode \"builtin\" has no network", "network_allowlist[0]: "}},
		"limits": {"name = \"a\"\nversion = \"1\"\nkind = \"grader\"\nmode = \"sidecar\"\n[runtime]\nmemory_mb = 1\n" +
			"processes = 0\n[entry.sidecar]\nargs = [\"\"]\n",
			[]string{"runtime.memory_mb: ", "runtime.processes: ", "entry.sidecar.args[0]: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParsePlugin(PluginFile, []byte(c.src))
			if err == nil {
				t.Fatal("no problems")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %s", err, want)
				}
			}
		})
	}
}

func TestGradersNamePluginsOfTheDeployment(t *testing.T) {
	t.Parallel()
	grades := []Grade{{Name: "a", Kind: GradePlugin, Plugin: "keywords"}}
	var d Deployment
	err := d.CheckServices(grades)
	if err == nil || !strings.Contains(err.Error(), "add [plugins.keywords] with its path") {
		t.Errorf("%v", err)
	}
	if err := d.WithPlugin("keywords", DefaultPlugin()).CheckServices(grades); err != nil {
		t.Error(err)
	}
	if len(d.Plugins) != 0 {
		t.Error("the deployment itself was changed")
	}
}

func TestProblemsOfPlugins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want string }{
		{"[plugins.a]\n", "plugins.a.path: missing: name the folder with the plugin's rollout-plugin.toml"},
		{"[plugins.a]\npath = \"x\"\ncontent_id = \"12\"\n", "plugins.a.content_id: \"12\" is not a content id"},
		{"[plugins.a]\npath = \"x\"\ntimeout = \"9m\"\n", "plugins.a.max_wait: must be at least timeout"},
		{"[plugins.A]\npath = \"x\"\n", "plugins.A: \"A\" is not a valid name"},
		{"[[defaults.grade]]\nname = \"a\"\nkind = \"plugin\"\n", "defaults.grade[0].plugin: missing"},
		{"[plugins.a]\npath = \"x\"\n[cloud]\nprovider = \"aws\"\nname=\"r\"",
			"plugins: the machines of a cloud have no folder"},
	} {
		src, want := c.src, c.want
		_, err := ParseDeployment("rollout.toml", []byte("schema_version = 1\n"+src))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nlacks %s", src, err, want)
		}
	}
}
