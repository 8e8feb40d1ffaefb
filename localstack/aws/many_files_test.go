package emulators

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/record"
)

// inFile matches the parts of an error row that name the file and line of an item.
var inFile = regexp.MustCompile(`"file":"[^"]*","line":\d+|line \d+ of [^"]*?\.jsonl`)

// Each of 600 lines is a file, so that the list of files is in parts. The answers, given over a
// network that throttles and loses replies while a worker crashes, are those of one file with
// the same lines.
func TestRunOfManyFilesOverTheDriversHasTheRowsOfOneFileInMemory(t *testing.T) {
	t.Parallel()
	local, cloud := localAndCloud(t)
	want, got := local.complete(t, false), cloud.completeFiles(t, strings.SplitAfter(prompts(), "\n"))
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		got, want := inFile.ReplaceAllString(got[i], ""), inFile.ReplaceAllString(want[i], "")
		if got != want || len(want) == 0 {
			t.Errorf("%s differs: %d and %d bytes", name, len(got), len(want))
		}
	}
}

// completeFiles is complete for a run of a file for each text.
func (s stores) completeFiles(t *testing.T, texts []string) [2]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	m := record.Manifest{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Name: "many"}
	for n, text := range texts {
		if text == "" { // behind the last line
			continue
		}
		info, err := s.blobs.Put(ctx, fmt.Sprintf("prompts/many/%06d.jsonl", n), strings.NewReader(text), blob.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.Inputs = append(m.Inputs, record.Input{Key: info.Key, Version: info.Version, Size: info.Size})
	}
	system := s.start(ctx, &all, deployment(), nil, true)
	if err := system.Submitter().Create(ctx, m, config.DefaultRun()); err != nil {
		t.Fatal(err)
	}
	files := s.results(t, m.Run)
	listed, err := s.blobs.List(ctx, record.InputPartKey(m.Run, ""), "", blob.MaxList)
	if err != nil || len(listed) != 2 {
		t.Errorf("the files are listed in %d parts: %v", len(listed), err)
	}
	return files
}
