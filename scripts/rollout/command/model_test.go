package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/localstack/tinytest"
	"rollout/shared/clock"
	"rollout/shared/snapshot"
)

// packModel returns the weights file of a small model.
func packModel(t *testing.T) []byte {
	t.Helper()
	b, err := weights.Pack("a test's model", tinytest.Model(t, tinytest.Config()), tinytest.Tokenizer(t), weights.BF16)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeBytes(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestModelExportNeverOverwrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	writeBytes(t, in, packModel(t))
	gguf, folder := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "hf")
	check(t, rollout(t.Context(), "model", "export", "--model", in, "--encoding", "q8_0", "--out", gguf), 0, "",
		"exported a test's model to "+gguf)
	check(t, rollout(t.Context(), "model", "export", "--model", in, "--format", "safetensors", "--out", folder), 0, "",
		folder)
	if b, err := os.ReadFile(gguf); err != nil || !bytes.HasPrefix(b, []byte("GGUF\x03\x00\x00\x00")) {
		t.Errorf("%.8q, %v", b, err)
	}
	names := map[string]bool{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names[e.Name()] = true
	}
	for _, want := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
		"tokenizer_config.json"} {
		if !names[want] {
			t.Errorf("no %s among %v", want, names)
		}
	}
	before, _ := os.ReadFile(gguf)
	check(t, rollout(t.Context(), "model", "export", "--model", in, "--out", gguf), 2, "", "it already exists",
		"name another --out")
	if after, _ := os.ReadFile(gguf); !bytes.Equal(before, after) {
		t.Error("a file was overwritten")
	}
	check(t, rollout(t.Context(), "model", "export", "--model", in, "--out", filepath.Join(dir, "no", "such", "x")), 2,
		"", "name an --out in an existing, writable folder")
	check(t, rollout(t.Context(), "model", "export", "--model", in, "--format", "safetensors", "--encoding", "q8_0",
		"--out", filepath.Join(dir, "y")), 2, "", "safetensors does not support q8_0")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestModelIsReadFromFolderOrSnapshot(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	state := t.TempDir()
	w := packModel(t)
	writeBytes(t, filepath.Join(state, "model.safetensors"), w)
	s := snapshot.Store{Blobs: b.Bucket, Docs: b.Ports.Docs, Clock: clock.Fixed(noon)}
	snap, err := s.Save(t.Context(), os.DirFS(state),
		snapshot.Details{Run: runA, Kind: snapshot.TrainState, Algorithm: "sft", Meta: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	want, err := weights.Load(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--model", state}, {"--snapshot", snap.ID[:10], "--dir", b.dir}} {
		got := rollout(t.Context(), append([]string{"model", "show", "--json"}, args...)...)
		var f struct {
			Name, Digest, Tokenizer string
			Parameters, Vocab       int
		}
		if err := json.Unmarshal([]byte(got.out), &f); err != nil || got.code != 0 {
			t.Fatalf("%v: %+v, %v", args, got, err)
		}
		if f.Name != "a test's model" || f.Digest != want.Digest || f.Tokenizer != want.Tokenizer.Hash() ||
			f.Vocab != tinytest.Vocab || f.Parameters != tinytest.Config().Parameters() {
			t.Errorf("%v: %+v", args, f)
		}
	}
	check(t, rollout(t.Context(), "model", "show", "--model", state), 0, ""+
		"model       a test's model\n"+
		"output      text\n"+
		"digest      "+want.Digest+"\n"+
		"parameters  652,160\n"+
		"shape       Llama: layers 3, width 128, heads 2 of 64, hidden 352\n"+
		"context     256 tokens\n"+
		"tokenizer   byte-level BPE, 384 tokens, "+want.Tokenizer.Hash()+"\n")
	other, err := s.Save(t.Context(), fstest.MapFS{"state.json": {Data: []byte("{}")}},
		snapshot.Details{Run: runB, Kind: snapshot.TrainState, Algorithm: "sft", Meta: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	check(t, rollout(t.Context(), "model", "show", "--snapshot", other.ID, "--dir", b.dir), 2, "",
		"a folder with a model.safetensors")
	check(t, rollout(t.Context(), "model", "show", "--snapshot", "ffff", "--dir", b.dir), 2, "", "snapshot")
}

func TestRewardModelIsExportedAsClassifier(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeBytes(t, filepath.Join(dir, "model.safetensors"), packModel(t))
	head := weights.File{Tensors: []model.Tensor{{Name: "score.weight", Shape: []int{1, 128}, Data: make([]float32, 128)}}}
	b, err := head.Encode(weights.F32)
	if err != nil {
		t.Fatal(err)
	}
	writeBytes(t, filepath.Join(dir, "head.safetensors"), b)
	if got := rollout(t.Context(), "model", "show", "--model", dir); !strings.Contains(got.out,
		"output      scores (a reward model)\n") {
		t.Errorf("%+v", got)
	}
	out := filepath.Join(dir, "out")
	check(t, rollout(t.Context(), "model", "export", "--model", dir, "--format", "safetensors", "--out", out), 0, "",
		"exported ")
	config, err := os.ReadFile(filepath.Join(out, "config.json"))
	if err != nil || !bytes.Contains(config, []byte("LlamaForSequenceClassification")) {
		t.Errorf("%s, %v", config, err)
	}
	check(t, rollout(t.Context(), "model", "export", "--model", dir, "--out", filepath.Join(dir, "gguf")), 2, "",
		"export it as safetensors")
	check(t, rollout(t.Context(), "serve", "--model", dir, "--addr", "127.0.0.1:0"), 2, "", "this is a reward model")
}

func TestDefaultModelIsTheBuiltInOne(t *testing.T) {
	t.Parallel()
	want, err := weights.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	got := rollout(t.Context(), "model", "show")
	out := filepath.Join(t.TempDir(), "tiny.gguf")
	check(t, rollout(t.Context(), "model", "export", "--out", out), 0, "", "exported rollout/tiny to ")
	if b, err := os.ReadFile(out); err != nil || !bytes.Contains(b, []byte("Apache-2.0")) ||
		!bytes.Contains(b, []byte(want.Digest)) {
		t.Errorf("the file tells no licence or digest: %v", err)
	}
	if got.code != 0 || !strings.Contains(got.out,
		"model       rollout/tiny\noutput      text\ndigest      "+want.Digest+"\n") {
		t.Errorf("%+v", got)
	}
}

func TestInvalidModelsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := packModel(t)
	writeBytes(t, filepath.Join(dir, "cut"), w[:len(w)-1])
	writeBytes(t, filepath.Join(dir, "noise"), []byte("this is no model at all"))
	reward := filepath.Join(dir, "reward")
	if err := os.Mkdir(reward, 0o755); err != nil {
		t.Fatal(err)
	}
	writeBytes(t, filepath.Join(reward, "model.safetensors"), w)
	writeBytes(t, filepath.Join(reward, "head.safetensors"), w)
	for name, c := range map[string]struct {
		code int
		want string
	}{
		"cut": {3, "cut"}, "noise": {3, "noise"}, "absent": {2, "absent"},
		"reward": {3, "must contain exactly one tensor, score.weight"}, ".": {2, "model.safetensors"},
	} {
		check(t, rollout(t.Context(), "model", "show", "--model", filepath.Join(dir, name)), c.code, "", c.want)
	}
	check(t, rollout(t.Context(), "model", "export", "--model", dir, "--format", "onnx"), 2, "", "gguf or safetensors")
	check(t, rollout(t.Context(), "model", "export", "--model", dir, "--encoding", "q4"), 2, "", "unknown encoding")
	check(t, rollout(t.Context(), "model", "export", "--model", dir), 2, "", "--out is missing")
	check(t, rollout(t.Context(), "model", "export", "--chat", "loud", "--out", filepath.Join(dir, "x")), 2, "",
		`--chat is "loud"`)
}
