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

var rewrite = flag.Bool("rewrite", false, "write the actual traces into the scripts")

// TestScripts runs the scripts in testdata. A script is the life of one shard
// document. A line that starts with > is a command; the line below it is the
// resulting document, or why the command was refused.
//
//	claim <worker> [vanished|left]              the state of the present holder
//	save|commit <worker> <attempt> [ok=N] [failed=N]
//	release
//	seal <class> items=N
//	suspect <worker> <attempt> <item>…          in flight when an engine crashed
//	name <worker> <attempt> [most=N]            starts the next probation
//	died <worker> <attempt> [start=S] [alone] [of=<item>,…]   a crash during probation, of all items or these
//	clear <item>…                               the items with a row
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
				t.Errorf("%s was refused and returns another document:\n%s\n%s", command, before, same)
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
		status := HolderAlive
		for _, f := range []HolderStatus{HolderLeft, HolderVanished} {
			if slices.Contains(words, string(f)) {
				status = f
			}
		}
		return d.Claim(words[1], now, status)
	case "save", "commit", "suspect", "name", "died":
		attempt, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			return d, fmt.Errorf("attempt %q", words[2])
		}
		return applyHeld(d, Holder{words[1], attempt}, words, c)
	case "clear":
		var open []int
		for i := range 1000 {
			if !slices.Contains(items(words[1:]), i) {
				open = append(open, i)
			}
		}
		return d.ClearSuspects(open), nil
	case "release":
		return d.Release()
	case "seal":
		return d.Seal(fault.Class(words[1]), number("items"))
	}
	return d, fmt.Errorf("unknown command")
}

// applyHeld applies a command that only a holder may give.
func applyHeld(d Doc, h Holder, words []string, c Counts) (Doc, error) {
	ref := Ref{Key: words[1] + "-" + words[2], Length: 9, Digest: "d"}
	switch words[0] {
	case "save":
		return d.SaveCheckpoint(h, ref, c)
	case "commit":
		return d.Commit(h, ref, 5, c)
	case "suspect":
		return d.AddSuspects(h, items(words[3:])...)
	case "name":
		limit := 64
		if len(words) > 3 {
			_, _ = fmt.Sscanf(words[3], "most=%d", &limit)
		}
		return d.StartProbation(h, d.NextProbation(limit).Items)
	}
	e, of := Crash{}, d.OnProbation
	for _, w := range words[3:] {
		if s, ok := strings.CutPrefix(w, "start="); ok {
			e.EngineStart = s
		}
		if s, ok := strings.CutPrefix(w, "of="); ok {
			of = items(strings.Split(s, ","))
		}
		e.Alone = e.Alone || w == "alone"
	}
	return d.RecordCrash(h, of, e)
}

// items reads numbers, and ranges such as 3-9.
func items(words []string) []int {
	var out []int
	for _, w := range words {
		lo, hi, isRange := strings.Cut(w, "-")
		first, _ := strconv.Atoi(lo)
		last := first
		if isRange {
			last, _ = strconv.Atoi(hi)
		}
		for i := first; i <= last; i++ {
			out = append(out, i)
		}
	}
	return out
}

func show(d Doc) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s attempt=%d", d.State, d.Attempt)
	if d.Worker != "" {
		fmt.Fprintf(&b, " worker=%s", d.Worker)
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
	if d.Suspects.Len() > 0 {
		fmt.Fprintf(&b, " suspects=%v", d.Suspects.Ranges())
	}
	if len(d.OnProbation) > 0 {
		fmt.Fprintf(&b, " solo=%v", d.OnProbation)
	}
	if len(d.Crashes) > 0 {
		fmt.Fprintf(&b, " deaths=%v", d.Crashes)
	}
	if d.LastCrash != "" {
		fmt.Fprintf(&b, " last=%s", d.LastCrash)
	}
	if d.VanishedHolders > 0 {
		fmt.Fprintf(&b, " vanished=%d", d.VanishedHolders)
	}
	if next := d.NextProbation(64); next.Poison {
		fmt.Fprintf(&b, " poison=%v", next.Items)
	}
	return b.String() + "\n"
}
