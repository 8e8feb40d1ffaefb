package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
	"rollout/shared/hub/hubtest"
	"rollout/shared/models"
)

// withHub runs a command line for the installation, with a hub and a token.
func (f fixture) withHub(h *hubtest.Hub, token string, args ...string) result {
	f.t.Helper()
	var out, errs bytes.Buffer
	code := command.Main(f.t.Context(), append(args, "--dir", f.dir), command.Env{Out: &out, Err: &errs,
		Clock: clock.Fixed(noon.Add(time.Hour)), Getenv: func(name string) string {
			return map[string]string{"HF_ENDPOINT": h.URL, "HF_TOKEN": token}[name]
		}})
	return result{code, out.String(), errs.String()}
}

func smallHub(t *testing.T) *hubtest.Hub {
	return hubtest.New(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": []byte("weights"),
		"pytorch_model.bin": []byte("the same weights"), ".gitattributes": nil})
}

func TestModelOfTheHubIsCachedOnce(t *testing.T) {
	t.Parallel()
	f, h := newFixture(t), smallHub(t)
	h.Token = "hf_secret"
	first := f.withHub(h, h.Token, "model", "cache", "acme/small@v1")
	check(t, first, 0, "acme/small at 89abcdef0123 is stored: 9 B of 2 files, 9 B new to the bucket, in 0s\n")
	check(t, f.withHub(h, h.Token, "model", "cache", "acme/small"), 0,
		"acme/small at 89abcdef0123 is in the bucket already: 9 B\n")
	var listed []models.Entry
	list := f.rollout("model", "list", "--json")
	if err := json.Unmarshal([]byte(list.out), &listed); err != nil || len(listed) != 1 ||
		listed[0].Name != "acme/small" || listed[0].Revision != hubtest.Commit ||
		listed[0].Files != 2 || listed[0].Bytes != 9 {
		t.Errorf("%+v: %+v, %v", list, listed, err)
	}
	check(t, f.rollout("model", "rm", "acme/small@99"), 2, "",
		"the bucket has no model acme/small@99", "rollout model list")
	check(t, f.rollout("model", "rm", "acme/small@89ab"), 0, "removed 1 model: 9 B\n")
	check(t, f.rollout("model", "list"), 0, "no models\n")
}

// A machine stores the files of its server alone, and no copy is ever changed.
func TestCopyThatLacksFilesIsNotTakenForAllOfThem(t *testing.T) {
	t.Parallel()
	f, h := newFixture(t), smallHub(t)
	check(t, f.withHub(h, "", "model", "cache", "acme/small"), 0, "acme/small at 89abcdef0123 is stored: 9 B of 2 files, "+
		"9 B new to the bucket, in 0s\n")
	check(t, f.withHub(h, "", "model", "cache", "--all", "acme/small"), 1, "",
		`acme/small at 89abcdef0123 has 2 files and lacks 2 of the 4 that you ask for, such as ".gitattributes"`,
		"rollout model rm acme/small@89abcdef0123")
	check(t, f.rollout("model", "rm", "acme/small@89abcdef0123"), 0, "removed 1 model: 9 B\n")
	check(t, f.withHub(h, "", "model", "cache", "--all", "acme/small"), 0, "acme/small at 89abcdef0123 is stored: "+
		"25 B of 4 files, 25 B new to the bucket, in 0s\n")
	check(t, f.withHub(h, "", "model", "cache", "acme/small"), 0,
		"acme/small at 89abcdef0123 is in the bucket already: 25 B\n")
}

// The bucket has the files of each tag by themselves, as machines ask for them.
func TestModelForLlamaCppIsCachedByItsTag(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := hubtest.New(t, map[string][]byte{"m-Q4_K_M.gguf": []byte("four"), "m-Q8_0.gguf": []byte("eight"),
		"mmproj-F16.gguf": []byte("eyes"), "README.md": []byte("about")})
	check(t, f.withHub(h, "", "model", "cache", "acme/small:q8_0"), 0,
		"acme/small:Q8_0 at 89abcdef0123 is stored: 9 B of 2 files, 9 B new to the bucket, in 0s\n")
	check(t, f.withHub(h, "", "model", "cache", "acme/small"), 0,
		"acme/small:GGUF at 89abcdef0123 is stored: 8 B of 2 files, 4 B new to the bucket, in 0s\n")
	check(t, f.withHub(h, "", "model", "cache", "--all", "acme/small"), 0,
		"acme/small at 89abcdef0123 is stored: 18 B of 4 files, 5 B new to the bucket, in 0s\n")
	check(t, f.withHub(h, "", "model", "cache", "acme/small:Q2_K"), 2, "",
		"acme/small has no .gguf file for llama.cpp of the tag Q2_K")
	check(t, f.withHub(h, "", "model", "cache", "acme/small:Q8_0@v1"), 2, "", "leave @ and the revision out")
	check(t, f.withHub(h, "", "model", "cache", "--all", "acme/small:Q8_0"), 2, "", "--all is for models without a tag")
	check(t, f.withHub(h, "", "model", "cache", "acme/small:../x"), 2, "", "is not a name of a model")
	list := f.rollout("model", "list")
	for _, name := range []string{"acme/small:Q8_0", "acme/small:GGUF", "acme/small "} {
		if !strings.Contains(list.out, name) {
			t.Errorf("%s is not listed:\n%s", name, list.out)
		}
	}
	check(t, f.rollout("model", "rm", "acme/small:q8_0"), 0, "removed 1 model: 0 B\n") // --all has its files
	check(t, f.rollout("model", "rm", "acme/small"), 0, "removed 1 model: 10 B\n")
	check(t, f.rollout("model", "rm", "acme/small:GGUF"), 0, "removed 1 model: 8 B\n")
}

func TestModelOfTheHubThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f, h := newFixture(t), smallHub(t)
	h.Token = "hf_secret"
	check(t, f.withHub(h, "", "model", "cache", "acme/small"), 1, "", "the hub does not show acme/small", "HF_TOKEN")
	got := f.withHub(h, "hf_wrong", "model", "cache", "acme/small")
	if got.code != 1 || strings.Contains(got.err, "hf_wrong") {
		t.Errorf("with another token: %+v", got)
	}
	check(t, f.withHub(h, "", "model", "cache", "acme/small/x"), 2, "", "is not a name of a model")
	check(t, f.withHub(h, "", "model", "cache", "acme/small", "--name", "x"), 2, "", "a model of the hub has a name")
	h.Files["../evil.safetensors"] = []byte("x")
	check(t, f.withHub(h, h.Token, "model", "cache", "acme/small"), 2, "",
		`"../evil.safetensors" can't be the path of a file`)
	check(t, f.rollout("model", "list"), 0, "no models\n")
}

func TestModelOfAFolderIsCached(t *testing.T) {
	t.Parallel()
	f, folder := newFixture(t), filepath.Join(t.TempDir(), "mine")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, f.rollout("model", "cache", folder), 0, "mine is stored: 2 B of 1 file, 2 B new to the bucket, in 0s\n")
	got := f.rollout("model", "cache", folder, "--name", "again", "--json")
	var did struct {
		Key      string
		NewBytes int64 `json:"new_bytes"`
	}
	if err := json.Unmarshal([]byte(got.out), &did); err != nil || !models.IsOwnKey(did.Key) || did.NewBytes != 0 {
		t.Errorf("%+v: %+v, %v", got, did, err)
	}
	check(t, f.rollout("model", "cache", filepath.Join(folder, "none")), 1, "", "there is no folder")
	check(t, f.rollout("model", "cache", "s3://acme/models/x"), 2, "",
		"is not an address of a bucket of this installation's cloud")
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	check(t, f.rollout("model", "cache", folder), 2, "", "links must stay within the folder")
}
