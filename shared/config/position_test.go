package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScanReturnsLineOfEveryKey(t *testing.T) {
	t.Parallel()
	src := "\xef\xbb\xbf# [not.a.table]\r\n" + `a = 1 # b = 2
s = """
c = 3
\"""" # the text ends here
l = '''x''''
t . u = "[v]"
[tab."le.x"]
d = [ # comment ]
  { e = 1 },
  2, [3,
  4],
]
[[arr]]
f = { g = 1, h = {i = '}'} }
[arr.sub]
j = 1
[[arr]]
f = 2
`
	got, excess := scan([]byte(src))
	if excess.line != 0 {
		t.Errorf("excess = %+v, want none", excess)
	}
	want := positions{"a": 2, "s": 3, "l": 6, "t": 7, "t.u": 7, "tab": 8, `tab."le.x"`: 8, `tab."le.x".d`: 9,
		`tab."le.x".d[0]`: 10, `tab."le.x".d[0].e`: 10, `tab."le.x".d[1]`: 11, `tab."le.x".d[2]`: 11,
		`tab."le.x".d[2][0]`: 11, `tab."le.x".d[2][1]`: 12,
		"arr[0]": 14, "arr[0].f": 15, "arr[0].f.g": 15, "arr[0].f.h": 15, "arr[0].f.h.i": 15,
		"arr[0].sub": 16, "arr[0].sub.j": 17, "arr[1]": 18, "arr[1].f": 19}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestPositionOfMissingFieldIsLineOfItsTable(t *testing.T) {
	t.Parallel()
	p := positions{"pool[0]": 3, "model": 9}
	for field, want := range map[string]int{
		"pool[0].name": 3, "pool[0]": 3, "model.uri": 9, "pool[1].name": 0, "x": 0, "": 0,
	} {
		if got := p.of(field); got != want {
			t.Errorf("of(%q) = %d, want %d", field, got, want)
		}
	}
}
