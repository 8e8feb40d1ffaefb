package fakellm

import (
	"encoding/hex"
	"strconv"
	"strings"

	"lukechampine.com/blake3"
)

const echoed = 200 // runes of the prompt that an answer repeats

// Characters that break careless readers of lines and streams. About one answer
// in four contains strange; Faults select the prompts that get the others.
const (
	strange    = "\u2028ünï\u0085côde 😀"
	separators = "one\u2028two\u2029three\u0085four"
	surrogates = "high " + lone + " low " + lone + "."
)

// lone stands for a lone surrogate, which a Go string cannot hold. It is a
// private-use rune that prompts do not contain.
const lone = "\U0010FFFD"

const maxSpaces = 1000 // words of a white-space answer without max_tokens

// answer is one answer of the server.
type answer struct {
	words       []string // the text is their concatenation
	finish      string
	digest      [32]byte
	asked       int  // prompt tokens
	surrogates  bool // lone is written as the escape of a surrogate
	badLogprobs bool
}

// answerTo builds the answer: "echo: ", the first 200 runes of the prompt, strange
// for one prompt in four, and 8 hex digits of the request's digest; then filler
// up to the number of tokens. In JSON mode this text is in an object. max_tokens
// truncates it.
func answerTo(q *completion, tokens int) answer {
	a := answer{finish: "stop", digest: q.digest(), asked: words(q.prompt)}
	text := "echo: " + firstRunes(q.echo, echoed)
	if a.digest[0]%4 == 0 {
		text += " " + strange
	}
	if q.quirks.separators {
		text += " " + separators
	}
	if q.quirks.surrogates {
		text += " " + surrogates
		a.surrogates = true
	}
	a.badLogprobs = q.quirks.badLogprobs
	a.words = strings.SplitAfter(text+" #"+hex.EncodeToString(a.digest[:4]), " ")
	for n := len(a.words); n < tokens; n++ {
		a.words = append(a.words, " w"+strconv.Itoa((int(a.digest[n%32])+n)%1000))
	}
	if q.json {
		a.words = strings.SplitAfter(`{"answer": `+string(quoted(strings.Join(a.words, "")))+"}", " ")
	}
	if q.maxTokens > 0 && len(a.words) > q.maxTokens {
		a.words, a.finish = a.words[:q.maxTokens], "length"
	}
	return a
}

// spaces builds an answer of white space up to max_tokens, after the words of
// start.
func spaces(q *completion, start ...string) answer {
	a := answer{finish: "length", digest: q.digest(), asked: words(q.prompt), words: start}
	limit := q.maxTokens
	if limit == 0 {
		limit = maxSpaces
	}
	for n := len(a.words); n < limit; n++ {
		a.words = append(a.words, []string{"\n", "  ", " "}[n%3])
	}
	a.words = a.words[:limit]
	return a
}

// digest identifies the request. As with real models, the seed does not count at
// temperature 0.
func (q *completion) digest() [32]byte {
	seed := q.seed
	if t, err := strconv.ParseFloat(q.temperature, 64); err == nil && t == 0 {
		seed = ""
	}
	h := blake3.New(32, nil)
	for _, s := range []string{q.model, "\x00", q.prompt, "\x00", seed, "\x00", q.temperature} {
		for len(s) > 0 { // short writes: the hasher starts goroutines for long ones
			n := min(len(s), 1024)
			_, _ = h.Write([]byte(s[:n])) // a hash's Write never fails
			s = s[n:]
		}
	}
	return [32]byte(h.Sum(nil))
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// words counts the words of s, which spaces and line feeds separate.
func words(s string) int {
	n, inWord := 0, false
	for i := range len(s) {
		space := s[i] == ' ' || s[i] == '\n'
		if !space && !inWord {
			n++
		}
		inWord = !space
	}
	return n
}
