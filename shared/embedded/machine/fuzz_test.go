package machine

import (
	"bytes"
	"testing"
	"time"

	"rollout/shared/fault"
)

// FuzzNotice parses arbitrary content of the notice file.
func FuzzNotice(f *testing.F) {
	for _, s := range []string{
		`{"reason":"spot","lead_seconds":30}`, `{"reason":"spot","lead_seconds":1e308}`,
		`{"reason":""}`, `{} {}`, "[", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		n, err := parseNotice(content)
		switch {
		case err != nil && !fault.Is(err, fault.Invalid):
			t.Errorf("%v is %s, want Invalid", err, fault.KindOf(err))
		case err == nil && (n.Reason == "" || n.Lead < 0 || n.Lead > maxLead*time.Second):
			t.Errorf("%q is the notice %+v", content, n)
		}
	})
}

// FuzzProbe parses arbitrary output of the GPU probe, which may have been killed.
func FuzzProbe(f *testing.F) {
	f.Add([]byte("[]\n[{\"uuid\":\"GPU-1\"}]\n[{\"uu"))
	f.Add([]byte("symbol lookup error: nvmlInit\n"))
	f.Fuzz(func(t *testing.T, output []byte) {
		if n := len(lastReport(output)); n > maxGPUs || n > 0 && !bytes.Contains(output, []byte("\n")) {
			t.Errorf("%d GPUs from %q", n, output)
		}
	})
}
