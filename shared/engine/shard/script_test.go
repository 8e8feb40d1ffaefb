package shard

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
)

var rewrite = flag.Bool("rewrite", false, "write the traces that come out into the scripts")

// Every script in testdata is the life of one shard document. A line that
// starts with > is a command; below it stands what it leaves: the document, or
// why it was refused.
//
//	claim <worker> [term=N] [dead]     dead: the present holder's heartbeat is over
//	save|commit <worker> <attempt> [ok=N] [failed=N]
//	release
//	seal <class> items=N
//	suspect item=N                     an item in flight when an engine died
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(raw))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(raw) {
				t.Errorf("the trace differs; run with -rewrite and compare:\n%s", got)
			}
		})
	}
}

func play(t *testing.T, script string) string {
	d := New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7)
	now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	var out strings.Builder
	for line := range strings.Lines(script) {
		command, isCommand := strings.CutPrefix(line, "> ")
		if !isCommand {
			if strings.HasPrefix(line, "#") || line == "\n" {
				out.WriteString(line)
			}
			continue
		}
		now = now.Add(time.Second)
		before, _ := json.Marshal(d)
		next, err := apply(d, strings.Fields(command), now)
		if after, _ := json.Marshal(d); string(after) != string(before) {
			t.Errorf("%s changed its argument:\n%s\n%s", command, before, after)
		}
		out.WriteString(line)
		var refused *fault.Error
		switch {
		case errors.As(err, &refused):
			fmt.Fprintf(&out, "  %s: %v\n", refused.Kind, err)
			if same, _ := json.Marshal(next); string(same) != string(before) {
				t.Errorf("%s was refused and gives another document:\n%s\n%s", command, before, same)
			}
		case err != nil:
			t.Fatalf("%s: %v", command, err)
		default:
			d = next
			out.WriteString(show(d))
		}
	}
	return out.String()
}

func apply(d Doc, words []string, now time.Time) (Doc, error) {
	number := func(name string) int { // name=N, 0 if it is not there
		for _, w := range words {
			if v, ok := strings.CutPrefix(w, name+"="); ok {
				n, _ := strconv.Atoi(v)
				return n
			}
		}
		return 0
	}
	c := Counts{OK: number("ok"), Failed: number("failed")}
	if c.Failed > 0 {
		c.ByClass = map[string]int{"refused": c.Failed}
	}
	switch words[0] {
	case "claim":
		return d.Claim(words[1], uint64(number("term")), now, slices.Contains(words, "dead"))
	case "save", "commit":
		attempt, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			return d, fmt.Errorf("attempt %q", words[2])
		}
		h, ref := Holder{words[1], attempt}, Ref{Key: words[1] + "-" + words[2], Length: 9, Digest: "d"}
		if words[0] == "save" {
			return d.Save(h, ref, c)
		}
		return d.Commit(h, ref, 5, c)
	case "release":
		return d.Release()
	case "seal":
		return d.Seal(fault.Class(words[1]), number("items"))
	case "suspect":
		d.Suspects = map[int]int{number("item"): 0}
		return d, nil
	}
	return d, fmt.Errorf("unknown command")
}

func show(d Doc) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s attempt=%d", d.State, d.Attempt)
	if d.Worker != "" {
		fmt.Fprintf(&b, " worker=%s", d.Worker)
	}
	if d.Term > 0 {
		fmt.Fprintf(&b, " term=%d", d.Term)
	}
	if !d.ClaimedAt.IsZero() {
		fmt.Fprintf(&b, " claimed=%s", d.ClaimedAt.Format("15:04:05"))
	}
	if d.Checkpoint != nil {
		fmt.Fprintf(&b, " checkpoint=%s", d.Checkpoint.Key)
	}
	if d.Result != nil {
		fmt.Fprintf(&b, " result=%s output=%d", d.Result.Key, d.OutputLen)
	}
	if d.Sealed != "" {
		fmt.Fprintf(&b, " sealed=%s", d.Sealed)
	}
	if d.Counts.OK+d.Counts.Failed > 0 {
		fmt.Fprintf(&b, " ok=%d failed=%d %v", d.Counts.OK, d.Counts.Failed, d.Counts.ByClass)
	}
	if len(d.Suspects) > 0 {
		fmt.Fprintf(&b, " suspects=%v", d.Suspects)
	}
	return b.String() + "\n"
}
