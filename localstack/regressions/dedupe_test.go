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

// copyRow is an output row of a run that sends identical requests once.
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

// repeated is a file of n lines with few different prompts. Each line has its own
// id and tag.
func repeated(n, prompts int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"id-%d\",\"prompt\":\"number %d.\",\"tag\":%d}\n", i, i%prompts, i)
	}
	return b.Bytes()
}

// The items are in several shards and two workers run them against a server.
func TestIdenticalRequestsAreSentOnce(t *testing.T) {
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
	o := p.awaitEnd(p.upload("prompts/x.jsonl", repeated(200, 7)))
	o.wantPhase(t, "completed")
	o.wantCounts(t, 200, 0)
	if n := len(e.requests()); n != 7 || o.Copies != 193 {
		t.Errorf("%d requests and %d copies, want 7 and 193", n, o.Copies)
	}
	rows := parsed[copyRow](t, o.out)
	var used int64
	for i, r := range rows {
		first := rows[i%7]
		if r.ID != fmt.Sprintf("id-%d", i) || r.Tag != i || r.Completion != first.Completion ||
			r.Completion == rows[(i+1)%7].Completion {
			t.Errorf("row %d is %+v", i, r)
		}
		if i >= 7 && (r.CopyOf != first.ID || r.Usage.Prompt+r.Usage.Completion != 0) || i < 7 &&
			(r.CopyOf != "" || r.Usage.Completion == 0) {
			t.Errorf("row %d is a copy of %q with the usage %+v", i, r.CopyOf, r.Usage)
		}
		used += r.Usage.Prompt + r.Usage.Completion
	}
	if used != o.PromptTokens+o.CompletionTokens {
		t.Errorf("the rows have %d tokens, the summary has %d", used, o.PromptTokens+o.CompletionTokens)
	}
}

func TestOnlyDeterministicRequestsAreDeduplicated(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]int{
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
			o := p.awaitEnd(p.upload("prompts/x.jsonl", repeated(20, 4)))
			o.wantPhase(t, "completed")
			if n := len(e.requests()); n != want {
				t.Errorf("%q: %d requests, want %d", config, n, want)
			}
		})
	}
}

func TestCopyFailsWithItsOriginal(t *testing.T) {
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
		o := p.awaitEnd(p.upload("prompts/x.jsonl", repeated(10, 3)))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 7, 3)
		for i, r := range parsed[errorRow](t, o.errs) {
			if r.Class != fault.TooLong || r.Item != uint64(1+3*i) || r.Line != uint64(2+3*i) || r.File != "prompts/x.jsonl" {
				t.Errorf("error %d is %+v", i, r)
			}
			if copied := strings.Contains(r.Error, "item 1 asks the same"); copied != (i > 0) {
				t.Errorf("error row %d is %q", i, r.Error)
			}
		}
		if n := len(e.requests()); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

// The run is stopped at many moments. A copy has an answer if its original has
// one (I1).
func TestStoppedRunAnswersCopiesLikeOriginals(t *testing.T) {
	t.Parallel()
	both := 0
	for i := range 60 {
		simulated(t, func(t *testing.T, p *system) {
			p.configure(fmt.Sprintf("[shard]\nitems = %d\n[limits]\ngrace = \"20ms\"\n"+
				"[dedupe]\nenabled = true\nsampled = true", 1+i%9))
			p.functions()
			p.work(setup{engine: newRecordingEngine(unevenLatency), inFlight: 3})
			id := p.upload("prompts/x.jsonl", repeated(40, 25))
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			p.await("the run exists", func() bool { return len(p.manifests()) > 0 })
			must(t, p.user().Stop(t.Context(), id, ""))
			o := p.awaitEnd(id)
			o.wantCounts(t, len(o.out), 40-len(o.out))
			answered := map[string]bool{}
			for _, r := range parsed[copyRow](t, o.out) {
				answered[r.ID] = true
				if r.CopyOf != "" && !answered[r.CopyOf] {
					t.Errorf("%s is a copy of %s, which has no answer", r.ID, r.CopyOf)
				}
			}
			for _, r := range parsed[errorRow](t, o.errs) {
				if of := fmt.Sprintf("id-%d", int(r.Item)-25); answered[of] || r.Class != "canceled" ||
					string(r.ID) != fmt.Sprintf(`"id-%d"`, r.Item) {
					t.Errorf("the error row is %+v; %s is answered: %v", r, of, answered[of])
				}
			}
			if len(o.out) > 0 && len(o.errs) > 0 {
				both++
			}
		})
	}
	if both < 20 {
		t.Errorf("only %d of 60 runs had rows in both files, too few for the test", both)
	}
}

func TestCopiesAreWrittenAfterTheInputIsDeleted(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[dedupe]\nenabled = true\nsampled = true")
		p.functions()
		p.work(setup{engine: newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			must(t, p.ports.Blobs.Delete(ctx, "prompts/x.jsonl", ""))
			return mocked(ctx, r)
		})})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", repeated(10, 1)))
		o.wantPhase(t, "completed")
		o.wantCounts(t, 10, 0)
	})
}

// copyOf and usage match the members in which a copy differs from an answer.
var (
	copyOf = regexp.MustCompile(`"copy_of":("[^"]*"|[0-9]+),?`)
	usage  = regexp.MustCompile(`"(usage|usageMetadata)":\{[^}]*\}`)
)

// Runs are compared with runs that send every request, in all dialects, against
// an engine with equal answers to equal requests.
func TestDeduplicationDoesNotChangeTheRows(t *testing.T) {
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
		run := func(dedupe bool) (o outcome, requests int) {
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[input]\ndialect = %q\n[shard]\nitems = %d\n"+
					"[sampling]\ntemperature = 0\nseed = 7\n[dedupe]\nenabled = %v", dialect, items, dedupe))
				e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
					if bytes.Contains(r.Body, []byte(refuse+`"`)) {
						return engine.Answer{}, fault.New(fault.Invalid, "no")
					}
					return mocked(ctx, r)
				})
				p.functions()
				p.work(setup{engine: e})
				p.work(setup{engine: e})
				o = p.awaitEnd(p.upload("prompts/x.jsonl", file.Bytes()))
				requests = len(e.requests())
			})
			return o, requests
		}
		once, requests := run(true)
		each, all := run(false)
		if requests != len(distinct) || all-requests != int(once.Copies) {
			rt.Fatalf("%d requests and %d copies, want %d requests of %d", requests, once.Copies, len(distinct), all)
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
		if fmt.Sprint(once.FailedByClass) != fmt.Sprint(each.FailedByClass) || once.Completed != each.Completed ||
			once.Phase != each.Phase {
			rt.Fatalf("%+v, want %+v", once.Summary, each.Summary)
		}
	})
}

// keys lists the members of an error row.
func keys(m map[string]any) (out []string) {
	for _, k := range []string{"id", "custom_id", "recordId", "key", "item", "file", "line", "class", "error",
		"status", "response"} {
		if _, ok := m[k]; ok {
			out = append(out, k)
		}
	}
	return out
}
