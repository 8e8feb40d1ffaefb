// Package tinytest contains what tests share that compare the tiny engine with
// other software: small models whose logits differ clearly, and texts that are
// difficult for tokenizers. Only tests import it.
package tinytest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
)

// Vocab is the size of Tokenizer's vocabulary.
const Vocab = 384

// Corpus is the text that Tokenizer is trained on.
const Corpus = `In the beginning God created the heaven and the earth. And the earth was without form, and void;
and darkness was upon the face of the deep. "They'll see," said he; they've 119 stones, and it's the LORD's.
	The light, the lights, the lighter: naïve façades, Τὸ φῶς, 光あれ. He didn't; we're; I'm; I'd.
`

// Tokenizer returns a tokenizer of Vocab tokens, trained on Corpus.
func Tokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Train(slices.Values([]string{strings.Repeat(Corpus, 3)}), Vocab)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// Config returns a shape similar to that of the shipped model, with fewer layers
// and a vocabulary of Vocab tokens.
func Config() model.Config {
	return model.Config{
		Vocab: Vocab, Width: 128, Layers: 3, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256,
		RopeBase: 10_000, NormEpsilon: 1e-5,
	}
}

// Model returns an untrained model. Its weights are large, so that its logits
// differ clearly.
func Model(t testing.TB, c model.Config) *model.Model {
	t.Helper()
	m, err := model.New(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, tensor := range m.Tensors() {
		for i := range tensor.Data {
			if len(tensor.Shape) == 1 {
				tensor.Data[i] = 0.5 + random.Float32()
			} else {
				tensor.Data[i] *= 6
			}
		}
	}
	return m
}

// Texts returns texts that are difficult for tokenizers because of their words,
// spaces, scripts or lengths. All are valid UTF-8 without U+0000.
func Texts() []string {
	texts := []string{
		"", " ", "  ", "\n", "\n\n \n", "a", " a", "the light", "The  light   of\tthe\n\nworld \n",
		"they'll they've it's I'm I'd we're 'tis '' 'S",
		"119 1 22 333 4444 3.14159 1,000,000", "naïve façades Τὸ φῶς 光あれ",
		"🙂🙂 👩‍👩‍👧‍👦 ❤️",
		"e\u0301 \u00a0\u2003x\u3000y\u200bz", "x²½ ٣٤ Ⅷ ①", "_under_score--dash…", "\r\n\r\n",
		"مرحبا بالعالم", "שלום", "नमस्ते", "ภาษาไทย",
		"한국어", "\ufeffBOM", "\u0001\u007f\u0085",
		strings.Repeat("a", 1000), strings.Repeat("the ", 300), strings.Repeat(" ", 100) + "x",
		"don'tell 'RE 'Ve", "ǅ ʰ ß ﬁ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𒀀", "\u2028\u2029 \u180e",
	}
	random := rand.New(rand.NewPCG(3, 4))
	alphabet := []rune("'srevldtm  \n\t09aZé²\u00a0\u2028!?.光🙂thelight")
	for range 200 {
		var b strings.Builder
		for range random.IntN(60) {
			b.WriteRune(alphabet[random.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	return texts
}

// Last returns the logits after the last of the tokens.
func Last(t testing.TB, m *model.Model, tokens []int32) (last []float32) {
	t.Helper()
	err := model.NewRunner(m, 1).AllLogits(tokens, func(_ int, row []float32) { last = append(last[:0], row...) })
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// Greedy returns n tokens after the prompt, each the likeliest one; of equally
// likely tokens, the lowest id.
func Greedy(t testing.TB, m *model.Model, prompt []int32, n int) (out []int32) {
	t.Helper()
	r, s := model.NewRunner(m, 1), m.NewSession()
	row := make([]float32, m.Config().Vocab)
	next := prompt
	for range n {
		if err := r.Step([]model.Slot{{Session: s, Tokens: next}}, [][]float32{row}); err != nil {
			t.Fatal(err)
		}
		best := int32(0)
		for i, v := range row {
			if v > row[best] {
				best = int32(i)
			}
		}
		next = []int32{best}
		out = append(out, best)
	}
	return out
}
