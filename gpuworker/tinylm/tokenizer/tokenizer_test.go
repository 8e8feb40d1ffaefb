package tokenizer

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"rollout/shared/fault"
)

// sample is text to learn from, with all classes of characters.
const sample = `In the beginning God created the heaven and the earth. And the earth was without form, and void;
and darkness was upon the face of the deep. "They'll see," said he; they've 119 stones, and it's the LORD's.
	The light, the lights, the lighter: naïve façades, Τὸ φῶς, 光あれ. He didn't; we're; I'm; I'd.`

// trained returns a tokenizer of the given size, trained on sample.
func trained(t testing.TB, vocab int) *Tokenizer {
	t.Helper()
	tok, err := Train(slices.Values([]string{sample, strings.ToUpper(sample)}), vocab)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTextIsCutIntoWordsLikeGPT2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"Hello world", []string{"Hello", " world"}},
		{"Ge1:2 And", []string{"Ge", "1", ":", "2", " And"}},
		{"they'll, we've; it's 'tis I'm I'd 'RE", []string{
			"they", "'ll", ",", " we", "'ve", ";", " it", "'s", " '", "tis", " I", "'m", " I", "'d", " '", "RE",
		}},
		{"don'tell", []string{"don", "'t", "ell"}},
		{"a  b", []string{"a", " ", " b"}},
		{"a   \n b", []string{"a", "   \n", " b"}},
		{"a\nb", []string{"a", "\n", "b"}},
		{"a\n\nb", []string{"a", "\n", "\n", "b"}},
		{"end \n ", []string{"end", " \n "}},
		{"x  ", []string{"x", "  "}},
		{" ", []string{" "}},
		{"a\u00a0b", []string{"a", "\u00a0", "b"}},
		{"a \u3000b", []string{"a", " ", "\u3000", "b"}},
		{"x²½ ٣", []string{"x", "²½", " ٣"}},
		{"光あれ。ok", []string{"光あれ", "。", "ok"}},
		{"e\u0301", []string{"e", "\u0301"}}, // a combining mark is not a letter
		{"🙂🙂!", []string{"🙂🙂!"}},
		{"a\xff\xfeb", []string{"a", "\xff\xfe", "b"}},
		{"'", []string{"'"}},
		{"<|endoftext|>", []string{"<|", "endoftext", "|>"}},
	} {
		var got []string
		for s := c.text; s != ""; s = s[word(s):] {
			got = append(got, s[:word(s)])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q is cut into %q, want %q", c.text, got, c.want)
		}
	}
}

func TestWordsAgreeWithThePattern(t *testing.T) {
	t.Parallel()
	// Go's regexp has no lookahead, so the test computes \s+(?!\S) itself.
	pattern := regexp.MustCompile(`^(?:'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\t-\r \x{85}\p{Z}\p{L}\p{N}]+)`)
	spaces := regexp.MustCompile(`^[\t-\r \x{85}\p{Z}]+`)
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.OneOf(rapid.SampledFrom([]rune("'srevldtm  \n\t09aZé²\u00a0\u2028!?.")), rapid.Rune())
		s := rapid.StringOf(runes).Draw(t, "text")
		for s != "" {
			want := len(pattern.FindString(s))
			if ws := spaces.FindString(s); want == 0 {
				want = len(ws)
				if _, last := utf8.DecodeLastRuneInString(ws); len(ws) < len(s) && len(ws) > last {
					want -= last
				}
			}
			if got := word(s); got != want {
				t.Fatalf("the first word of %q is %q, want %q", s, s[:got], s[:want])
			}
			s = s[word(s):]
		}
	})
}

func TestAnyBytesSurviveEncodingAndDecoding(t *testing.T) {
	t.Parallel()
	tok := trained(t, 400)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom(strings.SplitAfter(sample, " ")), 0, 40)
		b := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.StringN(0, 200, -1), func(s string) []byte { return []byte(s) }),
			rapid.Map(words, func(w []string) []byte { return []byte(strings.Join(w, "")) }),
		).Draw(t, "bytes")
		ids := tok.Encode(nil, string(b))
		got, err := tok.Decode(ids)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q decodes to %q, %v", b, got, err)
		}
		for _, id := range ids {
			if tok.SpecialName(id) != "" {
				t.Fatalf("%q encodes to the special token %s", b, tok.SpecialName(id))
			}
		}
	})
}

func TestLongAndShortWordsEncodeTheSame(t *testing.T) {
	t.Parallel()
	tok := trained(t, 400)
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"th", "e", "light", "ing", "aa", "a", "LORD", "è"})
		w := strings.Join(rapid.SliceOfN(part, 1, 8).Draw(t, "parts"), "")
		if len(w) > short {
			return
		}
		a, b := tok.encodeShort(nil, w), tok.encodeLong(nil, w)
		if !slices.Equal(a, b) {
			t.Fatalf("%q encodes to %v as a short word, to %v as a long one", w, a, b)
		}
	})
}

func TestTextNeverEncodesToASpecialToken(t *testing.T) {
	t.Parallel()
	tok := trained(t, 300)
	for _, name := range []string{EndOfText, System, User, Assistant} {
		id, ok := tok.Special(name)
		if !ok || tok.SpecialName(id) != name || tok.Piece(id) != nil {
			t.Errorf("%s has id %d (%v), with the name %q and the bytes %q",
				name, id, ok, tok.SpecialName(id), tok.Piece(id))
		}
		if ids := tok.Encode(nil, name); slices.Contains(ids, id) || len(ids) < 2 {
			t.Errorf("the text %s encodes to %v", name, ids)
		}
	}
	if _, ok := tok.Special("<|other|>"); ok {
		t.Error("<|other|> is special")
	}
}

func TestChatTurnsBeginWithTheRolesToken(t *testing.T) {
	t.Parallel()
	tok := trained(t, 300)
	system, _ := tok.Special(System)
	user, _ := tok.Special(User)
	assistant, _ := tok.Special(Assistant)
	var ids []int32
	for _, turn := range [][2]string{{"developer", "Be"}, {"user", "a"}, {"assistant", "b"}, {"user", ""}} {
		var err error
		if ids, err = tok.AppendTurn(ids, turn[0], turn[1]); err != nil {
			t.Fatal(err)
		}
	}
	ids = tok.AppendGenerationPrompt(ids)
	rest := []int32{user, 'a', assistant, 'b', tok.EndOfText(), user, assistant}
	want := slices.Concat([]int32{system}, tok.Encode(nil, "Be"), rest)
	if !slices.Equal(ids, want) {
		t.Errorf("the chat is %v, want %v", ids, want)
	}
	if _, err := tok.AppendTurn(nil, "tool", "x"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("unknown role: %v, want an Invalid fault", err)
	}
}

func TestTrainJoinsTheMostFrequentPairs(t *testing.T) {
	t.Parallel()
	tok, err := Train(slices.Values([]string{"low low low lower lower newest newest newest newest widest"}), MinVocab+6)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range tok.Merges() {
		got = append(got, string(tok.Piece(int32(256+i))))
	}
	// Counted by hand: "we" occurs 6 times; "lo" and "st" 5 times, after "we" has
	// reduced "es"; the others 4 times, lowest ids first.
	if want := []string{"we", "lo", "st", " n", " lo", "ewe"}; !slices.Equal(got, want) {
		t.Errorf("learnt %q, want %q", got, want)
	}
}

func TestTrainDoesNotDependOnTheOrderOfDocuments(t *testing.T) {
	t.Parallel()
	docs := strings.SplitAfter(sample, " ")
	a, err := Train(slices.Values(docs), 350)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(docs)
	b, err := Train(slices.Values(docs), 350)
	if err != nil {
		t.Fatal(err)
	}
	if a.Hash() != b.Hash() || a.Vocab() != 350 {
		t.Errorf("got %s, and %s in reverse order; want the same with 350 tokens", a, b)
	}
	seen := make(map[string]bool)
	for id := range int32(350 - 4) {
		if p := string(a.Piece(id)); seen[p] {
			t.Errorf("two tokens spell %q", p)
		} else {
			seen[p] = true
		}
	}
}

func TestTrainRefusesImpossibleSizes(t *testing.T) {
	t.Parallel()
	for vocab, want := range map[int]string{
		0: "must have 260 to 65536", 259: "must have", 65537: "must have", 5000: "have pairs for",
	} {
		_, err := Train(slices.Values([]string{sample}), vocab)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%d tokens: %v, want %q", vocab, err, want)
		}
	}
}

func TestStreamReturnsWholeCharacters(t *testing.T) {
	t.Parallel()
	tok := trained(t, 300)
	for _, c := range []struct {
		bytes string
		want  []string // after each byte, and at the end
	}{
		{"aé", []string{"a", "", "é", ""}},
		{"光!", []string{"", "", "光", "!", ""}},
		{"\xff", []string{"\ufffd", ""}},
		{"\xe5\x85x", []string{"", "", "\ufffd\ufffdx", ""}},
		{"\xf0\x9f", []string{"", "", "\ufffd\ufffd"}},
	} {
		s := tok.NewStream()
		var got []string
		for i := range len(c.bytes) {
			got = append(got, s.Push(int32(c.bytes[i])))
		}
		if got = append(got, s.Flush()); !slices.Equal(got, c.want) {
			t.Errorf("the stream of %q is %q, want %q", c.bytes, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		s, got := tok.NewStream(), ""
		for _, id := range tok.Encode(nil, text) {
			part := s.Push(id)
			if !utf8.ValidString(part) {
				t.Fatalf("%q is not UTF-8", part)
			}
			got += part
		}
		if got += s.Flush(); got != text {
			t.Fatalf("the stream of %q is %q", text, got)
		}
	})
}

func TestParseReadsBytesAndRefusesDamagedFiles(t *testing.T) {
	t.Parallel()
	a := trained(t, 420)
	b, err := Parse(a.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if a.Hash() != b.Hash() || !slices.Equal(a.Merges(), b.Merges()) {
		t.Errorf("%s is read as %s", a, b)
	}
	if got, want := b.Encode(nil, sample), a.Encode(nil, sample); !slices.Equal(got, want) {
		t.Errorf("the tokenizer that was read encodes to %v, want %v", got, want)
	}
	for file, want := range map[string]string{
		"":                            "line 1",
		"#rollout-bpe 2\n":            "line 1",
		"#rollout-bpe 1\nab":          "line 2: no space",
		"#rollout-bpe 1\na b\nab x y": "line 3",
		"#rollout-bpe 1\na bc":        `"bc" is not an earlier token`,
		"#rollout-bpe 1\na b\na b":    "as another token does",
		"#rollout-bpe 1\na \x01":      "is not an earlier token",
		"#rollout-bpe 1\n a":          `"" is not an earlier token`,
		"#rollout-bpe 1\n" + strings.Repeat("\n", MaxVocab): "at most",
	} {
		if _, err := Parse([]byte(file)); fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", file, err, want)
		}
	}
}

func TestDecodeRefusesIDsOutOfRange(t *testing.T) {
	t.Parallel()
	tok := trained(t, 300)
	for _, id := range []int32{-1, 300, 1 << 30} {
		_, err := tok.Decode([]int32{'a', id})
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "at index 1") {
			t.Errorf("token %d: %v, want an Invalid fault at index 1", id, err)
		}
	}
}

func TestByteLevelSpellsEveryByteLikeGPT2(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	s := ByteLevel(all)
	b, ok := bytesOf(s)
	if !ok || !bytes.Equal(b, all) {
		t.Errorf("%q represents % x, want % x", s, b, all)
	}
	if got := ByteLevel([]byte(" a\n\xad")); got != "ĠaĊŃ" {
		t.Errorf("got %q, want GPT-2's ĠaĊŃ", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("#rollout-bpe 1\nĠ t\nh e\nĠt he\n"))
	f.Add([]byte("#rollout-bpe 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(tok.Bytes())
		if err != nil || again.Hash() != tok.Hash() {
			t.Fatalf("%s is read as %s, %v", tok, again, err)
		}
	})
}

func FuzzEncode(f *testing.F) {
	tok := trained(f, 400)
	f.Add("In the beginning it's the LORD's light\n\n  \xff")
	f.Add(strings.Repeat("the", 100))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := tok.Decode(tok.Encode(nil, text))
		if err != nil || string(got) != text {
			t.Fatalf("%q decodes to %q, %v", text, got, err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tok := trained(b, 420)
	for name, text := range map[string]string{
		"text":    strings.Repeat(sample, 1<<20/len(sample)),
		"letters": strings.Repeat("a", 1<<20),
		"cycle":   strings.Repeat("the", 1<<20/3),
		"spaces":  strings.Repeat(" ", 1<<20),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			var ids []int32
			for b.Loop() {
				ids = tok.Encode(ids[:0], text)
			}
		})
	}
}
