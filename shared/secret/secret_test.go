package secret_test

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// text is the secret, which must never be printed.
const text = "hunter2-hf_abcdef"

func TestValueNeverPrintsItsText(t *testing.T) {
	t.Parallel()
	v := secret.NewValue(text)
	type holder struct {
		Public  secret.Value
		private secret.Value
		Pointer *secret.Value
		List    []secret.Value
		Map     map[string]secret.Value
		Any     any
	}
	h := holder{v, v, &v, []secret.Value{v}, map[string]secret.Value{"k": v}, v}
	outputs := map[string]string{}
	for _, verb := range []string{
		"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%T", "%c", "%U", "%o", "%e", "%p", "%w", "%z",
		"%5.1s",
	} {
		for name, arg := range map[string]any{
			"value": v, "pointer": &v, "holder": h, "holder pointer": &h, "list": []secret.Value{v}, "map": h.Map,
			"nested": [1]any{h},
		} {
			outputs[name+" "+verb] = fmt.Sprintf(verb, arg)
		}
	}
	for name, arg := range map[string]any{"value": v, "pointer": &v, "holder": h, "list": h.List, "map": h.Map} {
		out, err := json.Marshal(arg)
		if err != nil {
			t.Errorf("json of %s: %v", name, err)
		}
		outputs["json "+name] = string(out)
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("m", "secret", arg)
		slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "secret", arg)
		outputs["slog "+name] = logged.String()
	}
	marshaled, err := encoding.TextMarshaler(v).MarshalText()
	if err != nil {
		t.Error(err)
	}
	outputs["text"] = string(marshaled)
	failure := errors.Join(
		fmt.Errorf("could not use %v", v),
		fault.New(fault.Denied, "could not use %s and %+v", v, h),
	)
	outputs["errors"] = failure.Error()
	outputs["print"] = fmt.Sprint(v, h) + fmt.Sprintln(&h)

	for name, out := range outputs {
		for encodingName, leak := range map[string]string{
			"plain": text, "hex": hex.EncodeToString([]byte(text)), "base64": base64.StdEncoding.EncodeToString([]byte(text)),
			"part": "hunter2", "spaced hex": fmt.Sprintf("% x", text), "bytes": strings.Trim(fmt.Sprint([]byte(text)), "[]"),
		} {
			if strings.Contains(strings.ToLower(out), strings.ToLower(leak)) {
				t.Errorf("%s shows the text (%s): %s", name, encodingName, out)
			}
		}
	}
	for name, want := range map[string]string{
		"value %v": "***", "value %d": "***", "value %#v": "***", "json value": `"***"`, "text": "***",
	} {
		if outputs[name] != want {
			t.Errorf("%s = %s, want %s", name, outputs[name], want)
		}
	}
}

func TestReveal(t *testing.T) {
	t.Parallel()
	if got := secret.NewValue(text).Reveal(); got != text {
		t.Errorf("Reveal = %q", got)
	}
	if got := (secret.Value{}).Reveal(); got != "" {
		t.Errorf("the zero Value reveals %q", got)
	}
	if got := (secret.Value{}).String(); got != "***" {
		t.Errorf("the zero Value prints %q", got)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"hf-token": true, "a": true, strings.Repeat("a", 64): true, "0-9": true,
		"": false, strings.Repeat("a", 65): false, "HF-TOKEN": false, "hf_token": false, "a b": false, "../x": false,
		"a\n": false, "a\x00": false, "é": false,
	} {
		if err := secret.CheckName(name); (err == nil) != ok || (err != nil && !fault.Is(err, fault.Invalid)) {
			t.Errorf("CheckName(%q) = %v, want ok=%v", name, err, ok)
		}
	}
}
