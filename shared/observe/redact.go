package observe

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"unicode"
)

// Redacted replaces the value of a secret.
const Redacted = "***"

// Redact returns a handler that replaces the values of attributes whose keys look like a
// secret's, also in groups, and passes the records to h. It keeps numbers, times and
// booleans: a count of tokens is not a secret.
func Redact(h slog.Handler) slog.Handler { return redactor{h} }

type redactor struct{ next slog.Handler }

func (r redactor) Enabled(ctx context.Context, l slog.Level) bool { return r.next.Enabled(ctx, l) }

func (r redactor) Handle(ctx context.Context, rec slog.Record) error {
	clean := slog.NewRecord(rec.Time, rec.Level, rec.Message, rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(redact(a))
		return true
	})
	return r.next.Handle(ctx, clean)
}

func (r redactor) WithAttrs(as []slog.Attr) slog.Handler {
	return redactor{r.next.WithAttrs(redactAll(as))}
}

// WithGroup ignores the name of the group: a group whose name looks like a secret's may
// contain other attributes.
func (r redactor) WithGroup(name string) slog.Handler { return redactor{r.next.WithGroup(name)} }

func redactAll(as []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(as))
	for i, a := range as {
		out[i] = redact(a)
	}
	return out
}

func redact(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(redactAll(v.Group())...)}
	case slog.KindString, slog.KindAny:
		if LooksSecret(a.Key) {
			return slog.String(a.Key, Redacted)
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// secretWords are words that make a key look like a secret's.
var secretWords = []string{"secret", "secrets", "password", "passwd", "passphrase", "token", "apikey",
	"authorization", "bearer", "cookie", "credential", "credentials"}

// secretPairs are pairs of consecutive words that make a key look like a secret's.
var secretPairs = [][2]string{{"api", "key"}, {"access", "key"}, {"private", "key"}, {"signing", "key"}}

// LooksSecret reports whether a key names a secret: "api_key", "hfToken" and
// "Authorization" do, "max_tokens" and "key" do not.
func LooksSecret(key string) bool {
	words := wordsOf(key)
	for i, w := range words {
		if slices.Contains(secretWords, w) {
			return true
		}
		if i > 0 && slices.Contains(secretPairs, [2]string{words[i-1], w}) {
			return true
		}
	}
	return false
}

// wordsOf splits a key at every character that is not a letter or a digit, and between a
// lower-case and an upper-case letter.
func wordsOf(key string) []string {
	var b strings.Builder
	lower := false
	for _, r := range key {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case lower && unicode.IsUpper(r):
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
