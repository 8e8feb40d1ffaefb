package weights

import _ "embed"

//go:embed tiny.safetensors
var shipped []byte

// Shipped is the model that rollout comes with, "rollout/tiny". Each call reads
// it anew: the caller may change what it gets.
func Shipped() (*Bundle, error) { return Load(shipped) }
