package scenarios

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"rollout/shared/config"
)

// Each cloud's tests call Run, which runs all scenarios, and Disturb: once each, so that no
// cloud has a choice of its own.
func TestEachCloudRunsEachScenario(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{config.ProviderAWS, config.ProviderGCP} {
		files, err := filepath.Glob(filepath.Join("..", provider, "e2e", "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no end-to-end tests: %v", provider, err)
		}
		calls := map[string]int{}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					calls[calledOfScenarios(call)]++
				}
				return true
			})
		}
		for _, name := range []string{"Run", "Disturb"} {
			if calls[name] != 1 {
				t.Errorf("the end-to-end tests of %s call scenarios.%s %d times, want once", provider, name, calls[name])
			}
		}
	}
}

// calledOfScenarios returns the name of the function of this package that is called, or "".
func calledOfScenarios(call *ast.CallExpr) string {
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if from, ok := called.X.(*ast.Ident); !ok || from.Name != "scenarios" {
		return ""
	}
	return called.Sel.Name
}

// Scenarios are the names of subtests, by which people run one: two of one name would be
// told apart by a number.
func TestScenariosHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range All {
		if s.Name == "" || seen[s.Name] || s.run == nil {
			t.Errorf("the scenario %q has no name, or another's, or does nothing", s.Name)
		}
		seen[s.Name] = true
	}
}
