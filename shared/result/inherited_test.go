package result_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

const (
	parent = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	answer = `{"id":"a"}` + "\n"
)

func failure(item uint64, c fault.Class) string {
	return string(dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: fmt.Sprint(item),
		Place: dialect.Place{Item: item, File: "prompts/0.jsonl", Line: item + 1}, Class: c, Message: "no"}))
}

// inherited is a shard of items 7, 8 and 9 whose rows are those, after the first
// bytes of each file.
func inherited(outputs, errs string, ok, failed uint32) shardtable.Inherited {
	return shardtable.Inherited{Touched: true, FirstItem: 7, OutputAt: 2, ErrorAt: 2, FileEntry: shardtable.FileEntry{
		Outputs: uint64(len(outputs)), Errors: uint64(len(errs)), OK: ok, Failed: failed}}
}

func TestChildKeepsTheRowsThatItDoesNotAskAgain(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	errs := failure(7, fault.Refused) + failure(9, fault.Timeout)
	hosttest.Put(t, p, record.OutputKey(parent, record.CompletionsFile), "x\n"+answer)
	hosttest.Put(t, p, record.OutputKey(parent, record.ErrorsFile), "x\n"+errs)
	m := record.Manifest{Dialect: string(dialect.Plain), Parent: &record.Parent{Run: parent,
		Selection: record.Selection{Only: []string{string(fault.Timeout)}}}}
	rows, c, err := result.ReadKept(t.Context(), p.Blobs, m, inherited(answer, errs, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	want := []result.Row{{Item: 0, Class: fault.Refused, Bytes: []byte(failure(7, fault.Refused))},
		{Item: 1, Bytes: []byte(answer)}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	counts := shard.Counts{OK: 1, Kept: 1, Failed: 1, KeptFailed: 1, ByClass: map[string]int{"refused": 1}}
	if diff := cmp.Diff(counts, c); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
