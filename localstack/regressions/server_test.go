package regressions

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"rollout/localstack/fakellm"
)

func TestC15InvalidAnswerIsAnErrorOfItsItem(t *testing.T) {
	t.Parallel()
	replies := []string{
		`{}`, `{"choices":[]}`, `{"choices":null}`, `{"object":"chat.completion","choices":{}}`, `[]`, `null`,
		`"MOCK:hello"`, ``, `<html>200 OK</html>`,
		`{"error":{"message":"no"}}`, `{"choices":[null]}`, `{"choices":[{}]}`, "data: {}\n\ndata: [DONE]\n\n",
		"data: [DONE]\n\n",
		"echo",
	}
	good := fakeServer(t, fakellm.Config{})
	odd := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for i, reply := range replies {
			if !strings.Contains(string(body), fmt.Sprintf("odd %d.", i)) {
				continue
			}
			if reply == "echo" { // the request itself comes back
				reply = string(body)
			}
			w.Header().Set("Content-Type", "application/json")
			if strings.HasPrefix(reply, "data:") {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			_, _ = io.WriteString(w, reply) // the client may have left
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		good.ServeHTTP(w, r)
	})
	var file strings.Builder
	for i := range replies {
		fmt.Fprintf(&file, "{\"id\":\"odd-%d\",\"prompt\":\"odd %d.\"}\n{\"id\":\"good-%d\",\"prompt\":\"good %d\"}\n", i,
			i, i, i)
	}
	p := onDisk(t)
	p.configure("[limits]\nfailures = 2")
	p.functions()
	p.work(setup{engine: overHTTP(t, odd)})
	o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(file.String())))
	o.wantPhase(t, "completed_with_errors")
	o.wantCounts(t, len(replies), len(replies))
	for i, r := range parsed[errorRow](t, o.errs) {
		if string(r.ID) != fmt.Sprintf(`"odd-%d"`, i) || r.Class != "engine" || r.Error == "" {
			t.Errorf("the answer %q gives %+v, want the class engine", replies[min(i, len(replies)-1)], r)
		}
	}
	for i, r := range parsed[answerRow](t, o.out) {
		if string(r.ID) != fmt.Sprintf(`"good-%d"`, i) {
			t.Errorf("row %d has the id %s: %q", i, r.ID, r.Completion)
		}
	}
}
