package emulators

import (
	"crypto/rand"
	"strings"
)

// fresh returns a name that no other test uses. It begins with a letter, as names
// of Google Cloud must.
func fresh() string { return "t" + strings.ToLower(rand.Text()[:8]) }
