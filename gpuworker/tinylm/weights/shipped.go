package weights

import _ "embed"

//go:embed tiny.safetensors
var shipped []byte

// Shipped returns the model that rollout ships with, "rollout/tiny". Each call
// decodes it again, so that the caller may change the result.
func Shipped() (*Bundle, error) { return Load(shipped) }
