package servers_test

import (
	"strings"
	"testing"

	"rollout/shared/core/servers"
)

// The expectations are what llama.cpp's common/download.cpp takes of such models.
func TestGGUFFilesOfATag(t *testing.T) {
	t.Parallel()
	const several = "README.md m-BF16.gguf m-IQ4_XS.gguf m-Q4_K_M.gguf m-Q8_0.gguf m-imatrix.gguf mtp-m-Q4_K_M.gguf"
	const parts = "Q8_0/m-Q8_0-00002-of-00002.gguf Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00001-of-00003.gguf"
	for name, c := range map[string]struct{ files, tag, want string }{
		"the tag":                      {several, "Q8_0", "m-Q8_0.gguf"},
		"in small letters":             {several, "q8_0", "m-Q8_0.gguf"},
		"no tag: Q4_K_M":               {several, "", "m-Q4_K_M.gguf"},
		"no tag: Q8_0":                 {"a-BF16.gguf m-Q8_0.gguf", "", "m-Q8_0.gguf"},
		"no tag: the first":            {"mmproj.gguf z.gguf model.gguf", "", "model.gguf mmproj.gguf"},
		"a tag that no file has":       {several, "Q2_K", ""},
		"a tag that only begins a tag": {several, "Q4", ""},
		"a dot is a dot":               {"m-Qx0.gguf", "Q.0", ""},
		"no model":                     {"config.json model.safetensors mmproj-F16.gguf", "", ""},
		"parts": {parts, "Q8_0", "Q8_0/m-Q8_0-00001-of-00002.gguf " +
			"Q8_0/m-Q8_0-00002-of-00002.gguf"},
		"the tag of a folder": {"BF16/m.gguf BF16-x/m.gguf", "BF16", "BF16-x/m.gguf"},
		"the nearest projector": {"m-Q4_K_M.gguf mmproj-m-Q8_0.gguf mmproj-m-BF16.gguf", "Q4_K_M",
			"m-Q4_K_M.gguf mmproj-m-Q8_0.gguf"},
		"the projector of its folder": {"a/m-Q4_K_M.gguf a/mmproj-F32.gguf b/mmproj-Q4_0.gguf mmproj-Q4_0.gguf", "",
			"a/m-Q4_K_M.gguf a/mmproj-F32.gguf"},
		"the projector above": {"a/b/m-BF16-00001-of-00001.gguf mmproj-Q8_0.gguf mmproj-F16.gguf", "BF16",
			"a/b/m-BF16-00001-of-00001.gguf mmproj-F16.gguf"},
	} {
		g, ok := servers.PickGGUF(strings.Fields(c.files), c.tag)
		if got := strings.Join(g.Files(), " "); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, c.want)
		}
	}
}
