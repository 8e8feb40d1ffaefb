package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"rollout/shared/fault"
)

func TestRepliesAreDecoded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"payload":{"scores":[1]}}`: `{"scores":[1]}`,
		`{"payload":null}`:           `null`,
		`{}`:                         "malformed: it has neither",
		`{"payload":1,"error":"x"}`:  "malformed: it has a payload and an error",
		`{"payload":1} {}`:           "malformed: it is not one JSON object",
		`[1]`:                        "malformed: it is not a JSON object",
		``:                           "malformed: it is not a JSON object",
		"{\"payload\":\"\xff\"}":     "malformed: it is not one JSON object in UTF-8",
		`{"error":"no row"}`:         `the plugin says "no row"`,
		`{"error":"a\u001b[2Jb"}`:    `the plugin says "a\x1b[2Jb"`,
	} {
		got, err := DecodeReply([]byte(text))
		if said := string(got); err != nil {
			if said = err.Error(); !strings.Contains(said, want) {
				t.Errorf("%s: %s, want %s", text, said, want)
			}
		} else if said != want {
			t.Errorf("%s: %s, want %s", text, said, want)
		}
		if refused := new(RefusedError); errors.As(err, &refused) != fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v has the kind %v", text, err, fault.KindOf(err))
		}
	}
}

func TestFramesComeBack(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	for _, text := range []string{"{}", "", strings.Repeat("x", 100_000)} {
		if err := WriteFrame(&stream, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFrame(&stream)
		if err != nil || string(got) != text {
			t.Errorf("%d bytes come back as %d, %v", len(text), len(got), err)
		}
	}
	if _, err := ReadFrame(&stream); err != io.EOF {
		t.Errorf("the end of the stream is %v", err)
	}
}

// A frame of 2 GB is refused by its length, and takes no memory.
func TestLongFramesAreRefused(t *testing.T) {
	t.Parallel()
	_, err := ReadFrame(io.MultiReader(strings.NewReader("\x7f\xff\xff\xff"), neverEnding{}))
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "2147483647 bytes") {
		t.Errorf("%v", err)
	}
}

type neverEnding struct{}

func (neverEnding) Read([]byte) (int, error) { panic("a frame that is too long was read") }

func TestCutFramesAreNoEnd(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{"\x00\x00", "\x00\x00\x00\x05{}"} {
		if _, err := ReadFrame(strings.NewReader(cut)); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", cut, err)
		}
	}
}

func TestLargeRequestsAreRefused(t *testing.T) {
	t.Parallel()
	large := []byte(`"` + strings.Repeat("x", MaxBytes) + `"`)
	if _, err := AppendRequest(nil, "grade", large); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	got, err := AppendRequest(nil, "grade", []byte(`{"items":[]}`))
	if err != nil || string(got) != `{"method":"grade","payload":{"items":[]}}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestOtherABIsAreRefused(t *testing.T) {
	t.Parallel()
	if err := CheckABI(2); err == nil || !strings.Contains(err.Error(), "plugin ABI mismatch: got 2, expected 1") {
		t.Errorf("%v", err)
	}
	if err := CheckABI(1); err != nil {
		t.Error(err)
	}
}
