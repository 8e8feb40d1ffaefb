package openai

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// Pieces with a place for a string. Some add something else, some hold a second
// text, some are malformed.
var envelopes = []string{
	`{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":null}]}`,
	`{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":null}],` +
		`"usage":null}`,
	`{"id":"c","choices":[{"index":0,"text":%s,"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
	`{"id":"c","choices":[{"index":0,"text":%s,"finish_reason":"stop"}]}`,
	`{"id":"c","choices":[{"index":1,"text":"other"},{"index":0,"text":%s}]}`,
	`{"id":"c","choices":[{"index":0,"text":"twice"},{"index":0,"text":%s}]}`,
	`{"id":"c","choices":[{"index":0,"text":%s,"logprobs":{"tokens":["a"],"token_logprobs":[-1]}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":%s,"reasoning_content":"hm"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"reasoning_content":%s}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":%s,` +
		`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"x"}}]}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":%s}}],"error":{"message":"broken"}}`,
	`{"object":"error","choices":[{"index":0,"text":%s}]}`,
	`{"choices":[{"index":0,"text":%s}`,
}

var words = []string{`" word"`, `""`, `"a\nb"`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\u2028\"", `" \" "`,
	`"x","text":"y"`, `"x"},{"index":0,"text":"y"`, `null`, `7`, "\"\xff\"", `"cut`}

// An answer is the same whether its envelopes are known or parsed.
func TestKnownEnvelopeChangesNoAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var quick, slow parts
		quick.reset(4096)
		slow.reset(4096)
		few := rapid.SliceOfN(rapid.SampledFrom(envelopes), 1, 2).Draw(t, "envelopes")
		for range rapid.IntRange(1, 12).Draw(t, "pieces") {
			piece := fmt.Sprintf(rapid.SampledFrom(few).Draw(t, "shape"), rapid.SampledFrom(words).Draw(t, "string"))
			slow.envelope = envelope{}
			errQuick, errSlow := quick.add([]byte(piece)), slow.add([]byte(piece))
			if fmt.Sprint(errQuick) != fmt.Sprint(errSlow) {
				t.Fatalf("%s: %v, parsed: %v", piece, errQuick, errSlow)
			}
			if errQuick != nil {
				return
			}
		}
		a, errA := quick.answer()
		b, errB := slow.answer()
		if !reflect.DeepEqual(a, b) || fmt.Sprint(errA) != fmt.Sprint(errB) ||
			quick.max != slow.max || quick.pieces != slow.pieces {
			t.Fatalf("%+v (%v), parsed: %+v (%v)", a, errA, b, errB)
		}
	})
}

func TestEnvelopeIsKnownFromSecondPieceOn(t *testing.T) {
	t.Parallel()
	var p parts
	p.reset(4096)
	for n := range 3 {
		piece := []byte(fmt.Sprintf(envelopes[0], fmt.Sprintf(`" word%d"`, n)))
		if _, known := p.envelope.match(piece); known != (n > 0) {
			t.Errorf("piece %d: known is %v", n, known)
		}
		if err := p.add(piece); err != nil {
			t.Fatal(err)
		}
	}
	if string(p.text) != " word0 word1 word2" || p.pieces != 3 {
		t.Errorf("%q of %d pieces", p.text, p.pieces)
	}
}
