package imports

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Check returns every violation of Rules, Restrictions, PurePackages and
// BannedPackageNames, as "file: what is wrong".
func Check(files []File) []string {
	var out []string
	for _, f := range files {
		for _, violation := range check(f) {
			out = append(out, f.Path+": "+violation)
		}
	}
	return out
}

func check(f File) (out []string) {
	i := slices.IndexFunc(Rules, func(r Rule) bool { return match(r.Packages, f.Dir) })
	if i < 0 {
		return []string{fmt.Sprintf("package %s has no rule: add one to Rules in scripts/imports, or move it", f.Dir)}
	}
	name := strings.TrimSuffix(f.Package, "_test")
	if slices.Contains(BannedPackageNames, name) || slices.Contains(BannedPackageNames, path.Base(f.Dir)) {
		out = append(out, fmt.Sprintf("the name of package %s does not say what it is: choose another one", name))
	}
	for _, p := range f.Imports {
		if violation := checkImport(f, Rules[i], p); violation != "" {
			out = append(out, violation)
		}
	}
	if match(PurePackages, f.Dir) && !f.Test {
		for _, use := range f.Clock {
			out = append(out, use+" in the pure core: take the time as an argument")
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
	case inside && (!matchAny(r.Imports, own) || matchAny(r.Except, own)):
		return fmt.Sprintf("%s may not import %s", f.Dir, own)
	case inside:
		return checkRestrictions(f, own)
	case p == "C":
		return "cgo: every program is built without it"
	case r.StdOnly && strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
		return fmt.Sprintf("%s may import only the standard library, not %s", f.Dir, p)
	case match(PurePackages, f.Dir) && !f.Test && matchAny(Impure, p):
		return fmt.Sprintf("%s is pure and may not import %s", f.Dir, p)
	}
	return ""
}

// checkRestrictions applies Restrictions, and keeps conformance suites in
// tests. own is the imported package's folder.
func checkRestrictions(f File, own string) string {
	for _, r := range Restrictions {
		if match(r.Packages, own) && !match(r.Packages, f.Dir) && !matchAny(r.By, f.Dir) && !(f.Test && r.ByTests) {
			return fmt.Sprintf("%s may not import %s: %s", f.Dir, own, r.Reason)
		}
	}
	if strings.HasSuffix(own, "test") && !f.Test && !strings.HasSuffix(f.Dir, "test") {
		return fmt.Sprintf("only tests may import the suite %s", own)
	}
	return ""
}

func matchAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, dir) })
}

// match reports whether the folder or import path matches the pattern; see Rule.
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
