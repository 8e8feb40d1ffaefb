package config

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"rollout/shared/fault"
)

// MaxFileSize is the maximum size of a config file, in bytes.
const MaxFileSize = 1 << 20

// ParseRun writes the config of a run over DefaultRun. Messages name the source
// by file. Errors are Invalid and hold Problems.
func ParseRun(file string, src []byte) (Run, error) {
	r := DefaultRun()
	err := parse(file, src, versionRequired, &r, func(c *checker) { r.check(c, "") })
	return r, err
}

// ParseDeployment writes the config of a deployment over DefaultDeployment and
// the defaults of its provider. Messages name the source by file. Errors are
// Invalid and hold Problems.
func ParseDeployment(file string, src []byte) (Deployment, error) {
	d := DefaultDeployment()
	err := parse(file, src, versionRequired, &d, func(c *checker) {
		d.derive()
		d.check(c)
		d.allow()
	})
	return d, err
}

// ParseInfer writes the file of `rollout infer batch` over DefaultInfer. Messages
// name the source by file. Errors are Invalid and hold Problems.
func ParseInfer(file string, src []byte) (Infer, error) {
	f := DefaultInfer()
	err := parse(file, src, versionOptional, &f, func(c *checker) { f.check(c) })
	return f, err
}

// versionRule says whether the file must have schema_version.
type versionRule bool

const (
	versionRequired versionRule = true
	versionOptional versionRule = false
)

// parse writes src over the struct that into points to, and runs check on the
// result. Invalid TOML and a newer version are reported alone, because further
// problems would be guesses.
func parse(file string, src []byte, rule versionRule, into any, check func(*checker)) error {
	if len(src) > MaxFileSize {
		c := newChecker(file, nil)
		c.add("", "the file has %d bytes; a config has at most %d: is it the right file?", len(src), MaxFileSize)
		return c.err()
	}
	lines, over := scan(src)
	c := newChecker(file, lines)
	if over.line > 0 {
		c.addAt(over.line, "", "%s", over.why)
		return c.err()
	}
	tree, ok := c.tree(src)
	if !ok || !c.version(tree, rule) {
		return c.err()
	}
	if r, ok := into.(interface {
		normalize(*checker, map[string]any)
	}); ok {
		r.normalize(c, tree)
	}
	v := reflect.ValueOf(into).Elem()
	b := &binder{checker: c, known: pathsOf(v.Type(), "")}
	b.table(v, tree, "")
	check(c)
	return c.err()
}

// tree parses the source. It returns false after adding the one problem of a
// source that is not TOML.
func (c *checker) tree(src []byte) (map[string]any, bool) {
	if bytes.HasPrefix(src, []byte("\xff\xfe")) || bytes.HasPrefix(src, []byte("\xfe\xff")) {
		c.addAt(1, "", "the file is UTF-16: save it as UTF-8")
		return nil, false
	}
	if !utf8.Valid(src) {
		line := 1 + bytes.Count(validPrefix(src), []byte("\n"))
		c.addAt(line, "", "the file is not valid UTF-8 here: save it as UTF-8")
		return nil, false
	}
	var tree map[string]any
	_, err := toml.Decode(string(src), &tree)
	if err == nil {
		return tree, true
	}
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		c.add("", "the file is not valid TOML: %s", shorten(err.Error()))
		return nil, false
	}
	message := syntax.Message
	if message == "" {
		message = strings.TrimPrefix(syntax.Error(), "toml: ")
	}
	c.addAt(syntax.Position.Line, shorten(syntax.LastKey), "the file is not valid TOML: %s", shorten(message))
	return nil, false
}

// version reports whether this version can read the file. It adds the problem of
// a missing or newer schema_version.
func (c *checker) version(tree map[string]any, rule versionRule) bool {
	const field = "schema_version"
	x, ok := tree[field]
	if !ok {
		if rule == versionRequired {
			c.add(field, "missing: add schema_version = %d at the top of the file", SchemaVersion)
		}
		return true
	}
	if n, ok := x.(int64); ok && n > SchemaVersion {
		c.add(field, "the file has version %d, and this rollout reads up to version %d: "+
			"upgrade rollout, or rewrite the file for version %d", n, SchemaVersion, SchemaVersion)
		return false
	}
	return true
}

func validPrefix(src []byte) []byte {
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && n <= 1 {
			return src[:i]
		}
		i += n
	}
	return src
}

// Compact returns an equal config without comments and blank lines, for places
// with a small size limit such as a function's environment. It checks only that
// src is TOML; other source is Invalid.
func Compact(src []byte) ([]byte, error) {
	c := newChecker("", nil)
	tree, ok := c.tree(src)
	if !ok {
		return nil, c.err()
	}
	var out bytes.Buffer
	e := toml.NewEncoder(&out)
	e.Indent = ""
	if err := e.Encode(tree); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "encode the config")
	}
	var lines [][]byte
	for line := range bytes.Lines(out.Bytes()) {
		if len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return bytes.Join(lines, nil), nil
}
