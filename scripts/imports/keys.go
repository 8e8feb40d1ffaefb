package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"rollout/shared/observe"
)

// logCalls are the methods and functions whose string literals may be keys of
// log attributes.
var logCalls = map[string]bool{
	"Any": true, "Bool": true, "Debug": true, "DebugContext": true, "Duration": true, "Error": true, "ErrorContext": true,
	"Float64": true, "Info": true, "InfoContext": true, "Int": true, "Int64": true, "LogAttrs": true, "String": true,
	"Time": true, "Uint64": true, "Warn": true, "WarnContext": true, "With": true,
}

// keyPattern matches what can be a key; messages have spaces.
var keyPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]*$`)

// CheckLogKeys returns every key of a log attribute that observe.Keys spells
// differently, as "file:line: what is wrong". It does not look at tests.
func CheckLogKeys(tree fs.FS) ([]string, error) {
	var out []string
	wanted := func(name string) bool { return isGo(name) && !strings.HasSuffix(name, "_test.go") }
	err := walk(tree, wanted, func(name string, src []byte) error {
		out = append(out, checkLogKeys(name, src)...)
		return nil
	})
	return out, err
}

// checkLogKeys looks at one file. It ignores one that does not parse: the
// compiler reports it.
func checkLogKeys(name string, src []byte) (out []string) {
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
				out = append(out, fmt.Sprintf("%s:%d: the key %q is spelled %q in shared/observe",
					name, set.Position(lit.Pos()).Line, key, want))
			}
		}
		return true
	})
	return out
}

// spelling returns how observe.Keys spells the key, or the key itself if the
// table has no key for the same thing.
func spelling(key string) string {
	if !keyPattern.MatchString(key) {
		return key
	}
	for _, k := range observe.Keys {
		if normalize(k) == normalize(key) {
			return k
		}
	}
	return key
}

// normalize reduces keys that name the same thing to one string, for example
// "run_id" and "runID" to "run".
func normalize(key string) string {
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
