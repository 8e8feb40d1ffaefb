package aws

import (
	"strings"
	"testing"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
)

func FuzzBodiesSurviveSQS(f *testing.F) {
	for _, body := range []string{"{}", "\n\t\r", "\x00", "\x1b[2J", "\uFFFE", "\uFFFF", "ok \U0001F600", "\ufffd"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if !utf8.ValidString(body) || body == "" {
			t.Skip()
		}
		e := newEntry([]byte(body), 0)
		for _, r := range *e.MessageBody { // XML 1.0's Char
			if r != '\t' && r != '\n' && r != '\r' &&
				(r < 0x20 || r > 0xD7FF && r < 0xE000 || r == 0xFFFE || r == 0xFFFF) {
				t.Errorf("%q is sent with %U", body, r)
			}
		}
		back, err := DecodeBody(*e.MessageBody, awssdk.ToString(e.MessageAttributes[EncodingAttribute].StringValue))
		if err != nil || string(back) != body {
			t.Errorf("%q is decoded as %q, %v", body, back, err)
		}
	})
}

func TestDecodeBodyRefusesUnknownEncoding(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"gzip", strings.Repeat("x", 1000)} {
		if _, err := DecodeBody("e30=", encoding); err == nil || len(err.Error()) > 200 {
			t.Errorf("DecodeBody with the encoding %.10q... = %v, want a short error", encoding, err)
		}
	}
	if _, err := DecodeBody("not base64", "base64"); err == nil {
		t.Error("DecodeBody accepted a body that is not base64")
	}
}
