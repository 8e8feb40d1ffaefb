package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// simplePrompts is a plain file of the number of items with ids 00, 01, ….
func simplePrompts(items int) string {
	var b strings.Builder
	for n := range items {
		fmt.Fprintf(&b, "{\"id\":\"%02d\",\"prompt\":\"question %d\"}\n", n, n)
	}
	return b.String()
}

// promptsFile writes the prompts to a file outside the installation. The file
// always has the same name, since error rows contain it.
func promptsFile(t *testing.T, content string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "prompts.jsonl"), content)
}
