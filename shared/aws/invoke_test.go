package aws

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"rollout/shared/fault"
)

// lambdaAPI is a fake Lambda service, as an HTTPClient of the SDK.
type lambdaAPI struct {
	mu     sync.Mutex
	answer func(event string) (status int, code string)
	events []string
	paths  []string
	kinds  []string
	now    int           // concurrent requests
	most   int           // the highest value of now
	full   chan struct{} // closed when now reaches its limit
}

func (l *lambdaAPI) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.now++; l.now == invokers && l.full != nil {
		close(l.full)
		l.full = nil
	}
	l.most = max(l.most, l.now)
	l.events, l.paths = append(l.events, string(body)), append(l.paths, r.URL.Path)
	l.kinds = append(l.kinds, r.Header.Get("X-Amz-Invocation-Type"))
	l.mu.Unlock()
	status, code := l.answer(string(body))
	l.mu.Lock()
	l.now--
	l.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	if code != "" {
		header.Set("X-Amzn-Errortype", code)
	}
	text := strings.NewReader(`{"Message":"so it says"}`)
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(text)}, nil
}

func (l *lambdaAPI) functions() *Functions {
	return NewFunctions(testConfig(l), FunctionOptions{})
}

func TestInvokeSendsEachEventAsynchronously(t *testing.T) {
	t.Parallel()
	full := make(chan struct{})
	l := &lambdaAPI{full: full, answer: func(string) (int, string) {
		<-full
		return http.StatusAccepted, ""
	}}
	var events [][]byte
	var want []string
	for n := range 100 {
		want = append(want, fmt.Sprintf(`{"n":%02d}`, n))
		events = append(events, []byte(want[n]))
	}
	if err := l.functions().Invoke(t.Context(), "rollout-plan", events); err != nil {
		t.Fatal(err)
	}
	slices.Sort(l.events)
	if !slices.Equal(l.events, want) || l.most != invokers {
		t.Errorf("%d invocations, %d at once, want %d, %d at once", len(l.events), l.most, len(want), invokers)
	}
	for i := range l.events {
		if l.kinds[i] != "Event" || l.paths[i] != "/2015-03-31/functions/rollout-plan/invocations" {
			t.Errorf("%s to %s", l.kinds[i], l.paths[i])
		}
	}
	if err := l.functions().Invoke(t.Context(), "rollout-plan", nil); err != nil {
		t.Errorf("without events: %v", err)
	}
}

func TestInvokeReportsKindAndRemedyOfFailure(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct {
		status int
		want   fault.Kind
		says   string
	}{
		"ResourceNotFoundException":    {404, fault.NotFound, "deploy the stack"},
		"TooManyRequestsException":     {429, fault.Throttled, "rollout-plan"},
		"ResourceConflictException":    {409, fault.Unavailable, "rollout-plan"},
		"ServiceException":             {500, fault.Unavailable, "rollout-plan"},
		"RequestTooLargeException":     {413, fault.Invalid, "rollout-plan"},
		"RecursiveInvocationException": {400, fault.Denied, "rollout-plan"},
		"AccessDeniedException":        {403, fault.Denied, "role"},
	} {
		l := &lambdaAPI{answer: func(event string) (int, string) {
			if event == "2" {
				return c.status, code
			}
			return http.StatusAccepted, ""
		}}
		err := l.functions().Invoke(t.Context(), "rollout-plan", [][]byte{[]byte("1"), []byte("2"), []byte("3")})
		if !fault.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (%v)", code, err, fault.KindOf(err))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &lambdaAPI{answer: func(string) (int, string) { return http.StatusAccepted, "" }}
	if err := l.functions().Invoke(ctx, "rollout-plan", [][]byte{[]byte("1")}); !fault.Is(err, fault.Canceled) {
		t.Errorf("after the context ended: %v, want Canceled", err)
	}
}
