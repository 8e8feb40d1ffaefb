package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"rollout/shared/observe"
)

// logCalls are the methods and functions whose literals may be keys of log
// attributes.
var logCalls = map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "DebugContext": true, "InfoContext": true,
	"WarnContext": true, "ErrorContext": true, "LogAttrs": true, "With": true, "complain": true, "String": true, "Int": true,
	"Int64": true, "Uint64": true, "Float64": true, "Bool": true, "Any": true, "Time": true, "Duration": true}

// likeKey tells a key from a message.
var likeKey = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]*$`)

// Keys returns every key of a log attribute that has another spelling in
// observe.Keys, as "file:line: what is wrong".
func Keys(tree fs.FS) ([]string, error) {
	var out []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		out = append(out, keysOf(name, src)...)
		return nil
	})
	return out, err
}

// keysOf looks at one file; one that is no Go is left to the compiler.
func keysOf(name string, src []byte) (out []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !logCalls[f.Sel.Name] {
			return true
		}
		for _, arg := range call.Args {
			lit, ok := arg.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				continue
			}
			key, _ := strconv.Unquote(lit.Value)
			if want := spelling(key); want != key {
				out = append(out, fmt.Sprintf("%s:%d: the key %q is spelled %q (shared/observe)", name, set.Position(lit.Pos()).Line, key, want))
			}
		}
		return true
	})
	return out
}

// spelling is the one that the table has for what the key names; the key
// itself if it names something else.
func spelling(key string) string {
	if !likeKey.MatchString(key) {
		return key
	}
	for _, k := range observe.Keys {
		if bare(k) == bare(key) {
			return k
		}
	}
	return key
}

// bare is what a key names, without how it is written.
func bare(key string) string {
	s := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
	for _, suffix := range []string{"id", "index", "name", "url"} {
		s = strings.TrimSuffix(s, suffix)
	}
	switch s {
	case "err":
		return "error"
	case "why":
		return "reason"
	case "sample":
		return "item"
	}
	return s
}
