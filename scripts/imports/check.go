package imports

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Check returns every breach of the rules, as "file: what is wrong".
func Check(files []File) []string {
	var out []string
	for _, f := range files {
		for _, breach := range check(f) {
			out = append(out, f.Path+": "+breach)
		}
	}
	return out
}

func check(f File) (out []string) {
	i := slices.IndexFunc(Rules, func(r Rule) bool { return match(r.Packages, f.Dir) })
	if i < 0 {
		return []string{fmt.Sprintf("package %s has no rule: add one to Rules in scripts/imports, or move it", f.Dir)}
	}
	if name := strings.TrimSuffix(f.Package, "_test"); slices.Contains(BannedPackageNames, name) || slices.Contains(BannedPackageNames, path.Base(f.Dir)) {
		out = append(out, fmt.Sprintf("package %s is named after no thing: name it by what it is", name))
	}
	for _, p := range f.Imports {
		if breach := checkImport(f, Rules[i], p); breach != "" {
			out = append(out, breach)
		}
	}
	if match(PurePackages, f.Dir) && !f.Test {
		for _, use := range f.Clock {
			out = append(out, use+" in the pure engine: take the time as an argument")
		}
	}
	return out
}

// checkImport returns what is wrong with one import, or "".
func checkImport(f File, r Rule, p string) string {
	own, inside := strings.CutPrefix(p, Module+"/")
	switch {
	case inside && own == f.Dir:
		return ""
	case inside && !matchAny(r.Imports, own):
		return fmt.Sprintf("%s may not import %s", f.Dir, own)
	case inside:
		return checkUse(f, own)
	case p == "C":
		return "cgo: everything ships without it"
	case r.StdOnly && strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
		return fmt.Sprintf("%s may import the standard library alone, not %s", f.Dir, p)
	case match(PurePackages, f.Dir) && !f.Test && matchAny(Impure, p):
		return fmt.Sprintf("%s is pure and may not import %s", f.Dir, p)
	}
	return ""
}

// checkUse holds the rules about drivers and suites.
func checkUse(f File, own string) string {
	switch {
	case matchAny(Drivers, own) && !drives(f, own):
		return fmt.Sprintf("%s may not name the driver %s: take the port, and let wiring code choose", f.Dir, own)
	case strings.HasSuffix(own, "test") && !f.Test && !strings.HasSuffix(f.Dir, "test"):
		return fmt.Sprintf("only tests may import the suite %s", own)
	}
	return ""
}

// drives reports whether the file may name the driver.
func drives(f File, driver string) bool {
	if matchAny(Wiring, f.Dir) || f.Test && match(TestDriver, driver) {
		return true
	}
	for _, d := range Drivers {
		if match(d, driver) && match(d, f.Dir) { // a driver's own parts
			return true
		}
	}
	return false
}

func matchAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, dir) })
}

// match reports whether the folder matches the pattern; see Rule.
func match(pattern, dir string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(dir, "/")
	for i, part := range want {
		if part == "..." {
			return true
		}
		if i == len(have) || part != "*" && part != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}
