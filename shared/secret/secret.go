// Package secret is the port to named secrets: Secrets Manager, Secret Manager
// or the environment.
//
// Only names of an allowlist can be read; nothing can be written. A Value
// never prints, marshals or logs its text. Every driver passes secrettest.
package secret

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"

	"rollout/shared/fault"
)

// Value is a secret's text. Only Reveal returns it.
//
// The text is behind a pointer, because fmt prints the fields of a struct that
// holds a Value in an unexported field without asking the Value.
type Value struct{ text *string }

// NewValue wraps a secret's text.
func NewValue(text string) Value { return Value{text: &text} }

// Reveal returns the text, for the one place that must send it. The zero
// Value's is empty.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

const hidden = "***"

// String returns "***".
func (Value) String() string { return hidden }

// GoString returns "***".
func (Value) GoString() string { return hidden }

// Format writes "***" for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText returns "***".
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON returns "***" as a JSON string.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// LogValue returns "***".
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// Store reads secrets. A name outside the allowlist is Denied; an allowed but
// unset one is NotFound. Names match [a-z0-9-]{1,64}, such as "hf-token";
// others are Invalid. All methods may be called concurrently.
type Store interface {
	Get(ctx context.Context, name string) (Value, error)
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// CheckName refuses, as Invalid, a name that no secret can have. Drivers call it
// before they look at anything else.
func CheckName(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%q is not a valid name of a secret", name),
		Remedy: "use 1 to 64 lower-case letters, digits and hyphens"}
}
