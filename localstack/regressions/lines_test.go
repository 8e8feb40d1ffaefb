package regressions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/fakellm"
	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// lineOf is a line of n bytes, without a line feed.
func lineOf(n int) string {
	const frame = `{"prompt":""}`
	return `{"prompt":"` + strings.Repeat("x", n-len(frame)) + `"}`
}

func TestC04LongLinesAreAnsweredAndOverLongOnesFail(t *testing.T) {
	t.Parallel()
	sizes := []int{70_000, 15_000_000, jsonl.MaxLine, jsonl.MaxLine + 1, 20_000_000}
	var file bytes.Buffer
	for i, n := range sizes {
		fmt.Fprintf(&file, "{\"prompt\":\"before %d\"}\n%s\n", i, lineOf(n))
	}
	file.WriteString("{\"prompt\":\"last\"}\n")
	p := onDisk(t)
	p.functions()
	p.work(setup{inFlight: 2})
	o := p.awaitEnd(p.upload("prompts/x.jsonl", file.Bytes()))
	o.wantPhase(t, "completed_with_errors")
	o.wantCounts(t, 9, 2)
	for i, r := range parsed[answerRow](t, o.out) {
		if !strings.HasSuffix(r.Completion, r.Prompt) {
			t.Errorf("row %d has a prompt of %d bytes and an answer of %d", i, len(r.Prompt), len(r.Completion))
		}
	}
	for i, r := range parsed[errorRow](t, o.errs) {
		at := i + 3 // the fourth size is the first over-long one
		if r.Class != "invalid_line" || r.Line != uint64(2*at+2) || r.Item != uint64(2*at+1) ||
			!strings.Contains(r.Error, fmt.Sprint(sizes[at]+1)) {
			t.Errorf("the error row is %+v, want line %d, item %d and the size %d with the line feed", r, 2*at+2,
				2*at+1, sizes[at]+1)
		}
	}
}

func TestC04LongLinesReachTheServer(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.functions()
	p.work(setup{engine: overHTTP(t, fakeServer(t, fakellm.Config{}))})
	o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(lineOf(70_000)+"\n"+lineOf(20)+"\n"+lineOf(2_000_000))))
	o.wantPhase(t, "completed")
	o.wantCounts(t, 3, 0)
	for i, want := range []int{70_000, 20, 2_000_000} {
		if got := parsed[answerRow](t, o.out)[i]; len(got.Prompt) != want-13 || !strings.Contains(got.Completion, "xxx") {
			t.Errorf("row %d has a prompt of %d bytes and the answer %.30q, want a line of %d", i, len(got.Prompt),
				got.Completion, want)
		}
	}
}

func TestC05NumbersAreReturnedAsWritten(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		extras := []string{
			`"metadata":{"id":9007199254740993}`, `"big":1e400`, `"zero":-0`, `"long":123456789012345678901234567890`,
			`"exact":0.1000000000000000055511151231257827`, `"exp":1E+2`, `"tiny":1e-999`,
			`"nested":[[-0.0,{"n":9223372036854775808}]]`,
		}
		var file bytes.Buffer
		for i, e := range extras {
			fmt.Fprintf(&file, "{\"id\":%d,\"prompt\":\"a\",%s}\n", 9007199254740993+i, e)
		}
		p.functions()
		p.work(setup{})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", file.Bytes()))
		o.wantPhase(t, "completed")
		o.wantCounts(t, len(extras), 0)
		for i, row := range o.out {
			if !bytes.Contains(row, []byte(extras[i])) ||
				!bytes.HasPrefix(row, fmt.Appendf(nil, `{"id":%d,`, 9007199254740993+i)) {
				t.Errorf("%s is not in the row %s", extras[i], row)
			}
		}
	})
}

func TestC05ParametersReachTheServerAsWritten(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		written := []string{
			`"seed":9223372036854775807`, `"seed":-0`, `"temperature":1e-7`, `"temperature":0.70`, `"top_p":1E0`,
			`"logit_bias":{"9007199254740993":-100.0}`, `"seed":18446744073709551616`,
		}
		var file bytes.Buffer
		for i, w := range written {
			fmt.Fprintf(&file, "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","+
				"\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"%d\"}],%s}}\n", i, i, w)
		}
		e := newRecordingEngine(nil)
		p.functions()
		p.work(setup{engine: e})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", file.Bytes()))
		o.wantPhase(t, "completed")
		requests := e.requests()
		for _, w := range written {
			if !slices.ContainsFunc(requests, func(body string) bool { return strings.Contains(body, w) }) {
				t.Errorf("no request contains %s: %q", w, requests)
			}
		}
	})
}

func TestC06RepeatedIDIsAnErrorOfTheLaterLine(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 2")
		p.functions()
		p.work(setup{})
		line := func(id, prompt string) string {
			return fmt.Sprintf("{\"custom_id\":%s,\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":%q}}\n",
				id, prompt)
		}
		file := line(`"a"`, "one") + "\n" + line(`"b"`, "two") + line(`"a"`, "three") + line(`"\u0061"`, "four") +
			line(`"A"`, "five") + line(`" a"`, "six") + line(`"a"`, "one") + line(`"c"`, "seven")
		o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(file)))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 5, 3)
		answers := map[string]string{}
		for _, row := range o.out {
			var r struct {
				ID       string `json:"custom_id"`
				Response struct {
					Body struct{ Choices []struct{ Text string } }
				}
			}
			must(t, json.Unmarshal(row, &r))
			if _, twice := answers[r.ID]; twice {
				t.Errorf("two answers under the id %q", r.ID)
			}
			answers[r.ID] = r.Response.Body.Choices[0].Text
		}
		for id, prompt := range map[string]string{"a": "one", "b": "two", "A": "five", " a": "six", "c": "seven"} {
			if answers[id] != "MOCK:"+prompt {
				t.Errorf("the id %q has the answer %q, want MOCK:%s", id, answers[id], prompt)
			}
		}
		for i, line := range []uint64{4, 5, 8} {
			var r struct {
				ID    string `json:"custom_id"`
				Error struct {
					Code, Message, File string
					Line                uint64
				}
			}
			must(t, json.Unmarshal(o.errs[i], &r))
			if r.ID != "a" || r.Error.Code != "duplicate_id" || r.Error.Line != line ||
				!strings.Contains(r.Error.Message, "line 1 of prompts/x.jsonl") {
				t.Errorf("the error row is %+v, want line %d as a duplicate of line 1", r, line)
			}
		}
	})
}

func TestC06RepeatedIDInAnotherFileIsAnError(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{})
		var m record.Manifest
		for _, f := range []struct{ key, text string }{
			{"work/in/a.jsonl", "{\"id\":\"x\",\"prompt\":\"a1\"}\n{\"prompt\":\"a2\"}\n{\"id\":7,\"prompt\":\"a3\"}\n"},
			{"work/in/b.jsonl", "\n{\"id\":7,\"prompt\":\"b1\"}\n" +
				"{\"id\":\"y\",\"prompt\":\"b2\"}\n{\"id\":\"x\",\"prompt\":\"b3\"}\n"},
		} {
			info := p.put(f.key, []byte(f.text))
			m.Inputs = append(m.Inputs, record.Input{Key: f.key, Version: info.Version, Size: info.Size})
		}
		o := p.awaitEnd(p.create(m))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 4, 2)
		got := parsed[answerRow](t, o.out)
		for i, want := range []string{"MOCK:a1", "MOCK:a2", "MOCK:a3", "MOCK:b2"} {
			if got[i].Completion != want {
				t.Errorf("row %d is %q, want %q", i, got[i].Completion, want)
			}
		}
		errs := parsed[errorRow](t, o.errs)
		if e := errs[0]; string(e.ID) != `7` || e.Line != 2 || e.File != "work/in/b.jsonl" ||
			!strings.Contains(e.Error, "line 3 of work/in/a.jsonl") {
			t.Errorf("the first error row is %+v", e)
		}
		if e := errs[1]; string(e.ID) != `"x"` || e.Line != 4 || !strings.Contains(e.Error, "line 1 of work/in/a.jsonl") {
			t.Errorf("the second error row is %+v", e)
		}
	})
}

// create submits a run of inputs at fixed versions, as `rollout infer batch` does.
func (p *system) create(m record.Manifest) identity.RunID {
	p.t.Helper()
	m.Run = identity.UploadRun("create", m.Inputs[0].Key, m.Inputs[0].Version)
	must(p.t, p.submitter().Create(p.t.Context(), m, p.deploy.Defaults))
	return m.Run
}

func TestC07BlankLinesAreSkipped(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{})
		const a = `{"prompt":"a"}`
		plain := p.awaitEnd(p.upload("prompts/plain.jsonl", []byte(a+"\n"+a+"\n")))
		plain.wantCounts(t, 2, 0)
		for name, file := range map[string]string{
			"end": a + "\n" + a + "\n\n", "begin": "\n\n" + a + "\n" + a, "no-newline": a + "\n" + a,
			"crlf": a + "\r\n" + a + "\r\n", "crlf-no-newline": a + "\r\n" + a, "crlf-blank": "\r\n" + a + "\r\n\r\n \t\r\n" +
				a + "\r\n\r\n",
			"spaces": "   \n\t\n" + a + "\n  \n" + a + "\n \t ",
		} {
			o := p.awaitEnd(p.upload("prompts/"+name+".jsonl", []byte(file)))
			o.wantPhase(t, "completed")
			o.wantCounts(t, 2, 0)
			if timeless(o.out) != timeless(plain.out) {
				t.Errorf("%s: the rows differ from those of the plain file:\n%s\n%s", name, timeless(o.out), timeless(plain.out))
			}
		}
	})
}

func TestC08InvalidRequestIsAnErrorOfItsLine(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{})
		bad := []string{
			`[1,2,3]`, `"s"`, `null`, `true`, `12`, `{}`, `{"body":"x"}`, `{"prompt":5}`, `{"prompt":null}`, `{"messages":{}}`,
			`{"prompt":"a"`,
			`{"prompt":"a"}{"prompt":"b"}`, `{"prompt":"a"},`, `{'prompt':'a'}`, `{"prompt":NaN}`,
			`{"prompt":"a","t":Infinity}`, "{\"prompt\":\"tab\there\"}",
			`{"prompt":"a"} // why not`, strings.Repeat(`{"prompt":`, 100_000), `{"id":{},"prompt":"a"}`,
			`{"id":"","prompt":"a"}`, "\x00", `prompt,answer`,
		}
		var file bytes.Buffer
		for i, b := range bad {
			fmt.Fprintf(&file, "{\"prompt\":\"good %d\"}\n%s\n", i, b)
		}
		o := p.awaitEnd(p.upload("prompts/x.jsonl", file.Bytes()))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, len(bad), len(bad))
		for i, r := range parsed[errorRow](t, o.errs) {
			if r.Class != "invalid_line" || r.Line != uint64(2*i+2) || r.Item != uint64(2*i+1) || r.Error == "" {
				t.Errorf("%.60s: the error row is %+v, want invalid_line for line %d", bad[i], r, 2*i+2)
			}
		}
		for i, r := range parsed[answerRow](t, o.out) {
			if r.Prompt != fmt.Sprintf("good %d", i) {
				t.Errorf("row %d answers %q", i, r.Prompt)
			}
		}

		openai := `{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"a"}}`
		o = p.awaitEnd(p.upload("prompts/openai.jsonl",
			[]byte(openai+"\n"+`{"custom_id":"b","method":"POST","url":"/v1/completions","body":"x"}`+"\n"+
				`{"custom_id":"c","method":"GET","url":"/v1/completions","body":{"prompt":"c"}}`+"\n"+
				`{"custom_id":"d","method":"POST","url":"http://192.0.2.1/","body":{"prompt":"d"}}`+"\n")))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 1, 3)
		for i, id := range []string{"b", "c", "d"} {
			if !bytes.Contains(o.errs[i], []byte(`"custom_id":"`+id+`"`)) {
				t.Errorf("the error row has not the id %s: %s", id, o.errs[i])
			}
		}
	})
}

func TestC09RepeatedMemberIsAnErrorOfItsLine(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		e := newRecordingEngine(nil)
		p.functions()
		p.work(setup{engine: e})
		file := `{"prompt":"a","prompt":"b"}` + "\n" + `{"id":"x","prompt":"a","pro\u006dpt":"b"}` + "\n" +
			`{"prompt":"good","extra":{"k":1,"k":2}}` + "\n" +
			`{"id":"y","id":"z","prompt":"a"}` + "\n" + `{"prompt":"a","messages":[]}` + "\n"
		o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(file)))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 1, 4)
		if got := e.requests(); len(got) != 1 || !strings.Contains(got[0], "good") {
			t.Errorf("the requests are %q, want the one of the valid line", got)
		}
		// Values that are not parsed are returned as written.
		if !bytes.Contains(o.out[0], []byte(`"extra":{"k":1,"k":2}`)) {
			t.Errorf("the row is %s, want the extra member as written", o.out[0])
		}
		for i, id := range []string{"null", `"x"`, `"y"`} {
			if r := parsed[errorRow](t, o.errs)[i]; string(r.ID) != id || r.Class != "invalid_line" {
				t.Errorf("the error row is %+v, want the id %s", r, id)
			}
		}
	})
}

func TestC10FilesWithoutItemsComplete(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions() // without a worker, which only error rows need
		for name, c := range map[string]struct{ file, phase string }{
			"empty": {"", "completed"}, "newlines": {"\n\n\r\n\n", "completed"}, "newline": {"\n", "completed"},
			"spaces": {"   ", "completed"},
		} {
			o := p.awaitEnd(p.upload("prompts/"+name+".jsonl", []byte(c.file)))
			o.wantPhase(t, c.phase)
			o.wantCounts(t, 0, 0)
		}
		for name, file := range map[string][]byte{"empty.jsonl.gz": gzipped(t, nil), "empty.jsonl.zst": zstdded(t, nil),
			"newlines.jsonl.gz": gzipped(t, []byte("\n\n"))} {
			o := p.awaitEnd(p.upload("prompts/"+name, file))
			o.wantPhase(t, "completed")
			o.wantCounts(t, 0, 0)
		}
		p.work(setup{})
		o := p.awaitEnd(p.upload("prompts/invalid.jsonl", []byte(strings.Repeat("{oops\n", 600))))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 0, 600)
		if o.FailedByClass["invalid_line"] != 600 {
			t.Errorf("the classes are %v, want 600 invalid_line", o.FailedByClass)
		}
	})
}
