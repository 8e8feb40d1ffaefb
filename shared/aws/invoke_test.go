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

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"rollout/shared/fault"
)

// lambdaAPI answers invocations; it is an HTTPClient of the SDK.
type lambdaAPI struct {
	mu     sync.Mutex
	answer func(event string) (status int, code string)
	events []string
	paths  []string
	kinds  []string
	now    int // requests under way
	most   int
	full   chan struct{} // closed when as many are under way as may be
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
	l.events, l.paths, l.kinds = append(l.events, string(body)), append(l.paths, r.URL.Path), append(l.kinds, r.Header.Get("X-Amz-Invocation-Type"))
	l.mu.Unlock()
	status, code := l.answer(string(body))
	l.mu.Lock()
	l.now--
	l.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	if code != "" {
		header.Set("X-Amzn-Errortype", code)
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(`{"Message":"so it says"}`))}, nil
}

func (l *lambdaAPI) functions() *Functions {
	return NewFunctions(awssdk.Config{Region: "us-east-1", HTTPClient: l, Retryer: func() awssdk.Retryer { return awssdk.NopRetryer{} },
		Credentials: awssdk.CredentialsProviderFunc(none{}.anonymous)}, FunctionOptions{})
}

func TestEveryEventIsOneInvocationThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	full := make(chan struct{})
	l := &lambdaAPI{full: full, answer: func(string) (int, string) { <-full; return http.StatusAccepted, "" }}
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
		t.Errorf("%d invocations, %d at once", len(l.events), l.most)
	}
	for i := range l.events {
		if l.kinds[i] != "Event" || l.paths[i] != "/2015-03-31/functions/rollout-plan/invocations" {
			t.Errorf("%s to %s", l.kinds[i], l.paths[i])
		}
	}
	if err := l.functions().Invoke(t.Context(), "rollout-plan", nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}

func TestAnInvocationThatFailsSaysWhy(t *testing.T) {
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
		t.Errorf("of a caller that gave up: %v", err)
	}
}
