package licenses

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	root     = "../.."
	listFile = "modules.txt"
)

var update = flag.Bool("update", false, "rewrite modules.txt")

// The list is checked in, so that a change of it is part of a review.
func TestModulesAndLicencesAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	modules, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	got := List(modules)
	if *update {
		if err := os.WriteFile(listFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(listFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range missing(got, string(want)) {
		t.Errorf("the shipped programs link a module or licence that is not on the list: %s", line)
	}
	for _, line := range missing(string(want), got) {
		t.Errorf("the shipped programs no longer link what is on the list: %s", line)
	}
	if t.Failed() {
		t.Logf("check that the change is wanted, then run make licenses and commit scripts/licenses/%s", listFile)
	}
	notices := Notices(modules)
	for _, want := range []string{"modernc.org/sqlite v", "Apache License", "MIT License", "std go1.",
		"npm:lit-html 3.", "Google LLC. All rights reserved."} {
		if !strings.Contains(notices, want) {
			t.Errorf("the notices do not contain %q", want)
		}
	}
}

// missing returns the lines of a that b does not have.
func missing(a, b string) (out []string) {
	have := map[string]bool{}
	for line := range strings.Lines(b) {
		have[line] = true
	}
	for line := range strings.Lines(a) {
		if !have[line] {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

const mit = `Copyright (c) 2026 Jane Doe

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

const isc = `Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES
WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY
SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER
RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT,
NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE
USE OR PERFORMANCE OF THIS SOFTWARE.
`

// module writes a module's files and returns what inspect finds in it. The
// program links the module's packages a and b/c, not d.
func module(t *testing.T, files map[string]string) (Module, error) {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"a", "b/c", "d"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	linked := map[string]bool{filepath.Join(dir, "a"): true, filepath.Join(dir, "b", "c"): true}
	return inspect(&listedModule{Path: "example.com/m", Version: "v1.2.3", Dir: dir}, linked)
}

func TestModuleHasTheLicencesOfItsLinkedFolders(t *testing.T) {
	t.Parallel()
	m, err := module(t, map[string]string{
		"LICENSE": mit, "b/LICENSE.txt": isc, "NOTICE": "Thanks.", "license.go": "package m",
		"d/COPYING": "a folder that is not linked",
	})
	if err != nil || m.License != "ISC AND MIT" {
		t.Fatalf("got %q, %v; want ISC AND MIT", m.License, err)
	}
	other := Module{Path: "example.com/n", Version: "v2", License: "MIT", Texts: []Text{{"COPYING", mit}}}
	notices := Notices([]Module{m, other})
	if n := strings.Count(notices, "Jane Doe"); n != 1 {
		t.Errorf("the same text is written %d times, want once:\n%s", n, notices)
	}
	for _, want := range []string{
		"example.com/m v1.2.3 (LICENSE)\nexample.com/n v2 (COPYING)\n", "(b/LICENSE.txt)", "Thanks.",
	} {
		if !strings.Contains(notices, want) {
			t.Errorf("the notices do not contain %q:\n%s", want, notices)
		}
	}
}

func TestUnknownOrMissingLicenceIsAnError(t *testing.T) {
	t.Parallel()
	const gpl = `This program is free software: you can redistribute it and/or modify
it under the terms of the GNU General Public License as published by
the Free Software Foundation, either version 3 of the License, or
(at your option) any later version.

This program is distributed in the hope that it will be useful,
but WITHOUT ANY WARRANTY; without even the implied warranty of
MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
GNU General Public License for more details.

You should have received a copy of the GNU General Public License
along with this program.  If not, see <https://www.gnu.org/licenses/>.
`
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no file":          {nil, "no licence file"},
		"prose":            {map[string]string{"LICENSE": "Ask the author."}, "example.com/m/LICENSE: only 0%"},
		"not accepted":     {map[string]string{"COPYING": gpl}, "is not accepted"},
		"one of two files": {map[string]string{"LICENSE": mit, "a/LICENSE": "Ask."}, "example.com/m/a/LICENSE: only 0%"},
	} {
		if _, err := module(t, c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestReviewedFileThatChangedIsAnError(t *testing.T) {
	t.Parallel()
	_, err := classify("modernc.org/memory/LICENSE-LOGO", []byte("another picture"))
	if err == nil || !strings.Contains(err.Error(), "changed: read it") {
		t.Errorf("got %v", err)
	}
}
