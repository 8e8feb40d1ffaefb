package huggingface

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"rollout/gpuworker/tinylm/export"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/localstack/tinytest"
)

// answer is check.py's answer to one request.
type answer struct {
	Tokens []int32
	Text   string
	Logits []float64
}

// ask runs check.py for a folder with the given requests.
func ask(t *testing.T, folder string, requests []map[string]any) []answer {
	t.Helper()
	python := filepath.Join("..", "..", "..", "out", "huggingface", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		const missing = "Hugging Face's libraries are not installed: run `make huggingface`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	var in, out, stderr bytes.Buffer
	for _, q := range requests {
		if err := json.NewEncoder(&in).Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "check.py", folder)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("check.py: %v: %s", err, stderr.Bytes())
	}
	answers := make([]answer, len(requests))
	d := json.NewDecoder(&out)
	for i := range answers {
		if err := d.Decode(&answers[i]); err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

// write writes the model's files into a new folder and returns it.
func write(t *testing.T, m export.Model, e export.Encoding) string {
	t.Helper()
	folder := t.TempDir()
	for _, file := range export.HuggingFace(m, e) {
		f, err := os.Create(filepath.Join(folder, file.Name))
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Write(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestTokenizersLibraryGivesTheSameIDsAndTexts(t *testing.T) {
	t.Parallel()
	tok := tinytest.Tokenizer(t)
	m := tinytest.Model(t, tinytest.Config())
	folder := write(t, export.Model{Config: m.Config(), Tensors: m.Tensors(), Tokenizer: tok}, export.F32)
	texts := tinytest.Texts()
	var requests []map[string]any
	for _, text := range texts {
		requests = append(requests, map[string]any{"tokenize": text},
			map[string]any{"decode": tok.Encode([]int32{}, text)})
	}
	requests = append(requests, map[string]any{"tokenize": tokenizer.User + "a" + tokenizer.Assistant})
	answers := ask(t, folder, requests)
	for i, text := range texts {
		if ours, theirs := tok.Encode(nil, text), answers[2*i].Tokens; !slices.Equal(ours, theirs) {
			t.Errorf("%q encodes to %v, with the tokenizers library to %v", text, ours, theirs)
		}
		if theirs := answers[2*i+1].Text; theirs != text {
			t.Errorf("the tokens of %q decode to %q", text, theirs)
		}
	}
	// The tokenizers library parses special tokens in the text of a chat template.
	user, _ := tok.Special(tokenizer.User)
	want := tok.AppendGenerationPrompt([]int32{user, 'a'})
	if got := answers[2*len(texts)].Tokens; !slices.Equal(got, want) {
		t.Errorf("a text with special tokens encodes to %v, want %v", got, want)
	}
}

func TestChatTemplateGivesTheEnginesTokens(t *testing.T) {
	t.Parallel()
	tok := tinytest.Tokenizer(t)
	m := tinytest.Model(t, tinytest.Config())
	chat := []map[string]string{
		{"role": "system", "content": "Be brief."}, {"role": "user", "content": " In the\n"},
		{"role": "assistant", "content": "beginning"}, {"role": "user", "content": "{{ 7 }}"},
	}
	var turns []int32
	for _, message := range chat {
		var err error
		if turns, err = tok.AppendTurn(turns, message["role"], message["content"]); err != nil {
			t.Fatal(err)
		}
	}
	for chatTurns, want := range map[bool][]int32{
		true:  tok.AppendGenerationPrompt(turns),
		false: tok.Encode(nil, "Be brief.\n In the\n\nbeginning\n{{ 7 }}"),
	} {
		exported := export.Model{Config: m.Config(), Tensors: m.Tensors(), Tokenizer: tok, ChatTurns: chatTurns}
		folder := write(t, exported, export.F32)
		if got := ask(t, folder, []map[string]any{{"chat": chat}})[0].Tokens; !slices.Equal(got, want) {
			t.Errorf("with ChatTurns %t: %v, want %v", chatTurns, got, want)
		}
	}
}

func TestExportedTensorsGiveTheSameLogits(t *testing.T) {
	t.Parallel()
	for e, most := range map[export.Encoding]float64{export.F32: 1e-4, export.F16: 0.03} {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			c := tinytest.Config()
			c.Heads, c.RopeBase = 3, 50_000
			m, tok := tinytest.Model(t, c), tinytest.Tokenizer(t)
			folder := write(t, export.Model{Config: c, Tensors: m.Tensors(), Tokenizer: tok}, e)
			ids := tok.Encode(nil, tinytest.Corpus)[:100]
			theirs := ask(t, folder, []map[string]any{{"logits": ids}})[0].Logits
			worst, size := 0.0, 0.0
			for i, v := range tinytest.Last(t, m, ids) {
				worst = max(worst, math.Abs(float64(v)-theirs[i]))
				size = max(size, math.Abs(float64(v)))
			}
			t.Logf("logits up to %.3g differ by up to %.3g after %d tokens", size, worst, len(ids))
			if worst > most*size || len(theirs) != c.Vocab {
				t.Errorf("%d logits up to %.3g differ by %.3g, want at most %.3g", len(theirs), size, worst, most*size)
			}
		})
	}
}

func TestExportedRewardModelGivesTheSameScore(t *testing.T) {
	t.Parallel()
	m, tok := tinytest.Model(t, tinytest.Config()), tinytest.Tokenizer(t)
	head := make([]float32, m.Config().Width)
	for i := range head {
		head[i] = float32(i%7) - 3
	}
	ids := append(tok.Encode(nil, tinytest.Corpus)[:50], tok.EndOfText())
	ours, err := model.NewBackprop(m, 1).Rewards([]model.Sequence{{Tokens: ids}}, head)
	if err != nil {
		t.Fatal(err)
	}
	exported := export.Model{Config: m.Config(), Tensors: m.Tensors(), Tokenizer: tok, RewardHead: head}
	folder := write(t, exported, export.F32)
	theirs := ask(t, folder, []map[string]any{{"logits": ids}})[0].Logits
	if len(theirs) != 1 || math.Abs(theirs[0]-float64(ours[0])) > 1e-4*math.Abs(theirs[0]) {
		t.Errorf("the score is %g, with Hugging Face's layout %g", ours[0], theirs)
	}
}
