package progress

import "testing"

func TestFormatRowShowsIDsThatAreNumbers(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		`{"id":7,"prompt":"a","completion":" b "}`:                                        "7  a → b",
		`{"id":"p","prompt":"a","completion":"b"}`:                                        "p  a → b",
		`{"custom_id":12,"response":{"body":{"choices":[{"message":{"content":"hi"}}]}}}`: "12  hi",
		`{"id":7}`: `{"id":7}`,
	} {
		if got := formatRow([]byte(row)); got != want {
			t.Errorf("row %s is shown as %q, want %q", row, got, want)
		}
	}
}
