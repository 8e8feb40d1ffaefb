// Package secret is the port to named secrets: Secrets Manager, Secret Manager
// or the environment.
//
// Only names of an allowlist can be read; nothing can be written. A Value
// never prints, marshals or logs its text. Every driver passes secrettest.
package secret

import (
	"context"
	"log/slog"
)

// Value is a secret's text. Only Reveal returns it.
type Value struct{ text string }

// NewValue wraps a secret's text.
func NewValue(text string) Value { return Value{text} }

// Reveal returns the text, for the one place that must send it.
func (v Value) Reveal() string { return v.text }

// String returns "***".
func (Value) String() string { return "***" }

// GoString returns "***".
func (Value) GoString() string { return "***" }

// MarshalText returns "***".
func (Value) MarshalText() ([]byte, error) { return []byte("***"), nil }

// LogValue returns "***".
func (Value) LogValue() slog.Value { return slog.StringValue("***") }

// Store reads secrets. A name outside the allowlist is Denied; an allowed but
// unset one is NotFound. Names match [a-z0-9-]{1,64}, such as "hf-token".
type Store interface {
	Get(ctx context.Context, name string) (Value, error)
}
