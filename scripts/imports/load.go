package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// File is what the rules know of one Go file.
type File struct {
	Path    string   // for example "shared/fault/fault.go"
	Dir     string   // the package's folder; "." is the module's root
	Package string   // the name in its package clause
	Test    bool     // a _test.go file
	Imports []string // import paths as written
	Clock   []string // uses of the machine's clock and timers, for example "time.Now"
}

// skipped are the names of folders without source of this repository.
var skipped = map[string]bool{
	".git": true, "bin": true, "cdk.out": true, "data": true, "node_modules": true, "out": true, "testdata": true,
}

// walk calls visit with every file of the tree that wanted selects, outside of
// skipped folders, in the order of their names. It stops at the first error.
func walk(tree fs.FS, wanted func(name string) bool, visit func(name string, content []byte) error) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || !wanted(name):
			return nil
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return visit(name, content)
	})
}

func isGo(name string) bool { return path.Ext(name) == ".go" }

// Load reads every Go file of the tree.
func Load(tree fs.FS) ([]File, error) {
	var files []File
	err := walk(tree, isGo, func(name string, src []byte) error {
		f, err := parse(name, src)
		files = append(files, f)
		return err
	})
	return files, err
}

func parse(name string, src []byte) (File, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return File{}, fmt.Errorf("parse: %w", err)
	}
	f := File{Path: name, Dir: path.Dir(name), Package: syntax.Name.Name, Test: strings.HasSuffix(name, "_test.go")}
	clock := ""
	for _, spec := range syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		f.Imports = append(f.Imports, p)
		if p == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
		}
	}
	if clock != "" {
		f.Clock = clockUses(syntax, clock)
	}
	return f, nil
}

// clockFunctions are the functions of package time that read the machine's
// clock or start a timer.
var clockFunctions = map[string]bool{
	"After": true, "AfterFunc": true, "NewTicker": true, "NewTimer": true, "Now": true, "Since": true, "Sleep": true,
	"Tick": true, "Until": true,
}

// clockUses lists the clockFunctions that the file uses. The file imports
// package time under the given name.
func clockUses(syntax *ast.File, name string) (uses []string) {
	if name == "." {
		return []string{"time (dot import)"}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && clockFunctions[sel.Sel.Name] {
			uses = append(uses, "time."+sel.Sel.Name)
		}
		return true
	})
	return uses
}
