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

// File is what the rules see of one Go file.
type File struct {
	Path    string   // "shared/fault/fault.go"
	Dir     string   // the package's folder; "." is the module's root
	Package string   // the name in its package clause
	Test    bool     // a _test.go file
	Imports []string // import paths as written
	Clock   []string // uses of the machine's clock and timers, such as "time.Now"
}

// skipped are folders that hold no source of ours.
var skipped = map[string]bool{".git": true, "bin": true, "out": true, "data": true, "testdata": true, "node_modules": true, "cdk.out": true}

// Load reads every Go file of the tree.
func Load(tree fs.FS) ([]File, error) {
	var files []File
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := load(tree, name)
		files = append(files, f)
		return err
	})
	return files, err
}

func load(tree fs.FS, name string) (File, error) {
	src, err := fs.ReadFile(tree, name)
	if err != nil {
		return File{}, err
	}
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

// impure are the functions of package time that are not about their arguments
// alone.
var impure = map[string]bool{"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true,
	"Sleep": true, "Tick": true, "NewTimer": true, "NewTicker": true}

// clockUses lists the impure functions that the file uses; name is that of
// package time in it.
func clockUses(syntax *ast.File, name string) (uses []string) {
	if name == "." {
		return []string{"time (dot import)"}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && impure[sel.Sel.Name] {
			uses = append(uses, "time."+sel.Sel.Name)
		}
		return true
	})
	return uses
}
