package scenarios

import (
	"fmt"
	"strings"
)

// MixedPrompts is a plain file of a number of items, some of which break careless readers:
// separators inside strings, blank lines, CRLF, numbers beyond 2⁵³, lines that are not
// objects, two lines with one id.
func MixedPrompts(items int) string {
	var b strings.Builder
	for n := range items {
		switch n % 16 {
		case 3:
			fmt.Fprintf(&b, "\n{\"id\":\"blank-before-%d\",\"prompt\":\"after a blank line %d\"}\n\r\n", n, n)
		case 5:
			fmt.Fprintf(&b, "{\"prompt\":\"without an id %d\"}\n", n)
		case 6:
			fmt.Fprintf(&b, "{\"id\":\"sep-%d\",\"prompt\":\"one\u2028two\u2029three\u0085four %d\"}\n", n, n)
		case 7:
			fmt.Fprintf(&b, "[%d]\n", n)
		case 9:
			fmt.Fprintf(&b, "{\"id\":\"twice-%d\",\"prompt\":\"first %d\"}\n", n/32, n)
		case 10:
			fmt.Fprintf(&b, "{\"id\":\"chat-%d\",\"messages\":[{\"role\":\"user\",\"content\":\"say %d\"}]}\r\n", n, n)
		case 12:
			fmt.Fprintf(&b, "{\"id\":\"cut-%d\",\"prompt\":\"no end\n", n)
		case 13:
			fmt.Fprintf(&b, "{\"id\":\"meta-%d\",\"prompt\":\"numbers %d\","+
				"\"metadata\":{\"id\":9007199254740993,\"x\":1e400,\"y\":-0}}\n", n, n)
		case 14:
			fmt.Fprintf(&b, "{\"id\":\"p-%04d\",\"prompt\":\"Wörter & \\\"quotes\\\" %d ✓\"}\n", n, n)
		default:
			fmt.Fprintf(&b, "{\"id\":\"p-%04d\",\"prompt\":\"question number %d\",\"x\":9007199254740993}\n", n, n)
		}
	}
	return b.String()
}

// SimplePrompts is a plain file of a number of items.
func SimplePrompts(items int) string {
	var b strings.Builder
	for n := range items {
		fmt.Fprintf(&b, "{\"id\":\"%05d\",\"prompt\":\"question %d\"}\n", n, n)
	}
	return b.String()
}
