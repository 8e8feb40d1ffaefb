package regressions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/gpuworker/engine"
	"rollout/localstack/fakellm"
	"rollout/shared/fault"
)

// copyRow is an output row of a run that asks identical requests once.
type copyRow struct {
	ID         string `json:"id"`
	Completion string `json:"completion"`
	CopyOf     string `json:"copy_of"`
	Tag        int    `json:"tag"`
	Usage      struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	} `json:"usage"`
}

// repeated is a file of n lines that ask one of few prompts, each under an id
// and with a member of its own.
func repeated(n, prompts int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"id-%d\",\"prompt\":\"number %d.\",\"tag\":%d}\n", i, i%prompts, i)
	}
	return b.Bytes()
}

// TestIdenticalRequestsAreAskedOnce counts what a real server is asked, over
// several shards and two workers.
func TestIdenticalRequestsAreAskedOnce(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.configure("[shard]\nitems = 16\n[sampling]\ntemperature = 0\n[dedupe]\nenabled = true")
	p.functions()
	e := &recordingEngine{answer: nil}
	http := overHTTP(t, fakeServer(t, fakellm.Config{}))
	e.answer = func(ctx context.Context, r engine.Request) (engine.Answer, error) {
		return http.Answer(ctx, r, func() {})
	}
	p.work(setup{engine: e})
	p.work(setup{engine: e})
	o := p.ended(p.upload("prompts/x.jsonl", repeated(200, 7)))
	o.phase(t, "completed")
	o.counts(t, 200, 0)
	if n := len(e.requests()); n != 7 || o.Copies != 193 {
		t.Errorf("%d requests, %d copies", n, o.Copies)
	}
	rows := parsed[copyRow](t, o.out)
	var used int64
	for i, r := range rows {
		first := rows[i%7]
		if r.ID != fmt.Sprintf("id-%d", i) || r.Tag != i || r.Completion != first.Completion || r.Completion == rows[(i+1)%7].Completion {
			t.Errorf("row %d is %+v", i, r)
		}
		if i >= 7 && (r.CopyOf != first.ID || r.Usage.Prompt+r.Usage.Completion != 0) || i < 7 && (r.CopyOf != "" || r.Usage.Completion == 0) {
			t.Errorf("row %d is a copy of %q and used %+v", i, r.CopyOf, r.Usage)
		}
		used += r.Usage.Prompt + r.Usage.Completion
	}
	if used != o.PromptTokens+o.CompletionTokens {
		t.Errorf("the rows used %d tokens, the summary says %d", used, o.PromptTokens+o.CompletionTokens)
	}
}

func TestOnlyWhatIsAnsweredAlikeIsAskedOnce(t *testing.T) {
	t.Parallel()
	for config, asks := range map[string]int{
		"": 20,
		"[dedupe]\nenabled = false\n[sampling]\ntemperature = 0":                20,
		"[dedupe]\nenabled = true":                                              20,
		"[dedupe]\nenabled = true\n[sampling]\ntemperature = 0.7":               20,
		"[dedupe]\nenabled = true\n[sampling]\ntemperature = 0\nn = 2":          40,
		"[dedupe]\nenabled = true\nsampled = true\n[sampling]\nn = 2":           8,
		"[dedupe]\nenabled = true\nsampled = true\n[sampling]\ntemperature = 1": 4,
	} {
		simulated(t, func(t *testing.T, p *system) {
			p.configure(config)
			e := newRecordingEngine(nil)
			p.functions()
			p.work(setup{engine: e})
			o := p.ended(p.upload("prompts/x.jsonl", repeated(20, 4)))
			o.phase(t, "completed")
			if n := len(e.requests()); n != asks {
				t.Errorf("%q: %d requests, want %d", config, n, asks)
			}
		})
	}
}

func TestACopyFailsWithItsOriginal(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 3\n[dedupe]\nenabled = true\nsampled = true")
		e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			if strings.Contains(string(r.Body), "number 1.") {
				return engine.Answer{}, &fault.Error{Kind: fault.Invalid, Class: fault.TooLong, Op: "too long"}
			}
			return mocked(ctx, r)
		})
		p.functions()
		p.work(setup{engine: e})
		o := p.ended(p.upload("prompts/x.jsonl", repeated(10, 3)))
		o.phase(t, "completed_with_errors")
		o.counts(t, 7, 3)
		for i, r := range parsed[errorRow](t, o.errs) {
			if r.Class != fault.TooLong || r.Item != uint64(1+3*i) || r.Line != uint64(2+3*i) || r.File != "prompts/x.jsonl" {
				t.Errorf("error %d is %+v", i, r)
			}
			if named := strings.Contains(r.Error, "item 1 asks the same"); named != (i > 0) {
				t.Errorf("error %d says %q", i, r.Error)
			}
		}
		if n := len(e.requests()); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestI1OfAStoppedRunWithCopies stops a run at many moments: a copy has what
// its original has.
func TestI1OfAStoppedRunWithCopies(t *testing.T) {
	t.Parallel()
	both := 0
	for i := range 60 {
		simulated(t, func(t *testing.T, p *system) {
			p.configure(fmt.Sprintf("[shard]\nitems = %d\n[limits]\ngrace = \"20ms\"\n[dedupe]\nenabled = true\nsampled = true", 1+i%9))
			p.functions()
			p.work(setup{engine: newRecordingEngine(uneven), inFlight: 3})
			id := p.upload("prompts/x.jsonl", repeated(40, 25))
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			p.await("there is a run", func() bool { return len(p.manifests()) > 0 })
			must(t, p.user().Stop(t.Context(), id, ""))
			o := p.ended(id)
			o.counts(t, len(o.out), 40-len(o.out))
			answered := map[string]bool{}
			for _, r := range parsed[copyRow](t, o.out) {
				answered[r.ID] = true
				if r.CopyOf != "" && !answered[r.CopyOf] {
					t.Errorf("%s is a copy of %s, which has no answer", r.ID, r.CopyOf)
				}
			}
			for _, r := range parsed[errorRow](t, o.errs) {
				if of := fmt.Sprintf("id-%d", int(r.Item)-25); answered[of] || r.Class != "canceled" || string(r.ID) != fmt.Sprintf(`"id-%d"`, r.Item) {
					t.Errorf("%+v, although %s is answered: %v", r, of, answered[of])
				}
			}
			if len(o.out) > 0 && len(o.errs) > 0 {
				both++
			}
		})
	}
	if both < 20 {
		t.Errorf("only %d of 60 runs had rows in both files: they prove little", both)
	}
}

func TestCopiesOfAnInputThatIsGoneByTheEndAreStillMade(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[dedupe]\nenabled = true\nsampled = true")
		p.functions()
		p.work(setup{engine: newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			must(t, p.ports.Blobs.Delete(ctx, "prompts/x.jsonl", ""))
			return mocked(ctx, r)
		})})
		o := p.ended(p.upload("prompts/x.jsonl", repeated(10, 1)))
		o.phase(t, "completed")
		o.counts(t, 10, 0)
	})
}

// copyOf is what a copy's row has and others have not, usage what they count.
var (
	copyOf = regexp.MustCompile(`"copy_of":("[^"]*"|[0-9]+),?`)
	usage  = regexp.MustCompile(`"(usage|usageMetadata)":\{[^}]*\}`)
)

// TestCopiesAreWhatAskingEveryLineGives compares runs with runs that ask every
// line, in all dialects, of an engine that answers the same to the same.
func TestCopiesAreWhatAskingEveryLineGives(t *testing.T) {
	t.Parallel()
	formats := map[string]string{
		"plain":   `{"tag":%[1]d,"id":"i%[1]d","prompt":"%[2]s"}`,
		"openai":  `{"tag":%[1]d,"custom_id":"i%[1]d","url":"/v1/completions","body":{"prompt":"%[2]s"}}`,
		"bedrock": `{"tag":%[1]d,"recordId":"i%[1]d","modelInput":{"messages":[{"role":"user","content":"%[2]s"}]}}`,
		"vertex":  `{"tag":%[1]d,"key":"i%[1]d","request":{"contents":[{"parts":[{"text":"%[2]s"}]}]}}`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		dialect := rapid.SampledFrom([]string{"plain", "openai", "bedrock", "vertex"}).Draw(rt, "dialect")
		var file bytes.Buffer
		distinct := map[int]bool{}
		for i := range rapid.IntRange(1, 30).Draw(rt, "lines") {
			switch prompt := rapid.IntRange(-1, 6).Draw(rt, "prompt"); prompt {
			case -1:
				file.WriteString("{}\n")
			default:
				distinct[prompt] = true
				fmt.Fprintf(&file, formats[dialect]+"\n", i, fmt.Sprintf("p%d", prompt))
			}
		}
		items := rapid.IntRange(1, 40).Draw(rt, "items")
		refuse := fmt.Sprintf("p%d", rapid.IntRange(0, 12).Draw(rt, "refused"))
		run := func(dedupe bool) (o outcome, asks int) {
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[input]\ndialect = %q\n[shard]\nitems = %d\n[sampling]\ntemperature = 0\nseed = 7\n[dedupe]\nenabled = %v", dialect, items, dedupe))
				e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
					if bytes.Contains(r.Body, []byte(refuse+`"`)) {
						return engine.Answer{}, fault.New(fault.Invalid, "no")
					}
					return mocked(ctx, r)
				})
				p.functions()
				p.work(setup{engine: e})
				p.work(setup{engine: e})
				o = p.ended(p.upload("prompts/x.jsonl", file.Bytes()))
				asks = len(e.requests())
			})
			return o, asks
		}
		once, asks := run(true)
		each, all := run(false)
		if asks != len(distinct) || all-asks != int(once.Copies) {
			rt.Fatalf("%d requests and %d copies, of %d different ones in %d", asks, once.Copies, len(distinct), all)
		}
		bare := func(rows [][]byte) string {
			return usage.ReplaceAllString(strings.ReplaceAll(copyOf.ReplaceAllString(timeless(rows), ""), ",}", "}"), "")
		}
		if got, want := bare(once.out), bare(each.out); got != want {
			rt.Fatalf("%s\nwant\n%s", got, want)
		}
		for i, row := range once.errs {
			a, b := map[string]any{}, map[string]any{}
			must(t, json.Unmarshal(row, &a))
			must(t, json.Unmarshal(each.errs[i], &b))
			if fmt.Sprint(keys(a)) != fmt.Sprint(keys(b)) || a["class"] != b["class"] || a["line"] != b["line"] {
				rt.Fatalf("error %d is %s, want %s", i, row, each.errs[i])
			}
		}
		if fmt.Sprint(once.FailedByClass) != fmt.Sprint(each.FailedByClass) || once.Completed != each.Completed || once.Phase != each.Phase {
			rt.Fatalf("%+v, want %+v", once.Summary, each.Summary)
		}
	})
}

func keys(m map[string]any) (out []string) {
	for _, k := range []string{"id", "custom_id", "recordId", "key", "item", "file", "line", "class", "error", "status", "response"} {
		if _, ok := m[k]; ok {
			out = append(out, k)
		}
	}
	return out
}
