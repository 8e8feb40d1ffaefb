package aws

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
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

// service is a fake AWS service with a JSON protocol, as an HTTPClient of the SDK.
type service struct {
	mu     sync.Mutex
	answer func(operation string, in map[string]any) any
	calls  []string // operations, in order
}

// refusal is an error response.
type refusal struct {
	status int
	Code   string `json:"__type"`
}

func (s *service) Do(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	s.calls = append(s.calls, operation)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var in map[string]any
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	out := s.answer(operation, in)
	status := http.StatusOK
	if refused, ok := out.(refusal); ok {
		status = refused.status
	}
	content, err := json.Marshal(out)
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(string(content))),
	}, err
}

// testConfig returns a configuration whose requests go to client, without retries.
func testConfig(client awssdk.HTTPClient) awssdk.Config {
	return awssdk.Config{
		Region: "us-east-1", HTTPClient: client,
		Retryer:     func() awssdk.Retryer { return awssdk.NopRetryer{} },
		Credentials: awssdk.CredentialsProviderFunc(fakeCredentials{}.anonymous),
	}
}

func (s *service) config() awssdk.Config {
	return testConfig(s)
}

// batch returns SQS's response to a batch. fail returns the code with which an
// entry fails, "" for success, and whether it is the sender's fault.
func batch(in map[string]any, fail func(id string, entry map[string]any) (code string, sender bool)) any {
	succeeded, failed := []any{}, []any{}
	for _, e := range in["Entries"].([]any) {
		entry := e.(map[string]any)
		id := entry["Id"].(string)
		if code, sender := fail(id, entry); code != "" {
			failed = append(
				failed,
				map[string]any{"Id": id, "Code": code, "SenderFault": sender, "Message": "so it says"},
			)
			continue
		}
		ok := map[string]any{"Id": id, "MessageId": "m-" + id}
		if body, sent := entry["MessageBody"].(string); sent {
			sum := md5.Sum([]byte(body))
			ok["MD5OfMessageBody"] = hex.EncodeToString(sum[:])
		}
		succeeded = append(succeeded, ok)
	}
	return map[string]any{"Successful": succeeded, "Failed": failed}
}

// queuesOver returns Queues whose requests s answers, except GetQueueUrl.
func queuesOver(s *service) *Queues {
	answer := s.answer
	s.answer = func(operation string, in map[string]any) any {
		if operation == "GetQueueUrl" {
			return map[string]any{"QueueUrl": "https://sqs.invalid/1/" + in["QueueName"].(string)}
		}
		return answer(operation, in)
	}
	return NewQueues(s.config(), QueueOptions{Prefix: "rollout-"})
}

func TestSendRetriesOnlyEntriesThatSQSFailed(t *testing.T) {
	t.Parallel()
	got, failures := map[string]int{}, 3
	s := &service{answer: func(_ string, in map[string]any) any {
		return batch(in, func(_ string, entry map[string]any) (string, bool) {
			if body := entry["MessageBody"].(string); strings.HasSuffix(body, "7") && failures > 0 {
				failures--
				return "InternalError", false
			}
			got[entry["MessageBody"].(string)]++
			return "", false
		})
	}}
	var bodies [][]byte
	for i := range 23 {
		bodies = append(bodies, fmt.Appendf(nil, "body %d", i))
	}
	if err := queuesOver(s).Send(t.Context(), "work", bodies, 0); err != nil {
		t.Fatal(err)
	}
	for _, b := range bodies {
		if got[string(b)] != 1 {
			t.Errorf("%s was sent %d times", b, got[string(b)])
		}
	}
}

func TestSendReportsKindAndCodeOfFailedEntry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		sender bool
		want   fault.Kind
		tries  int
	}{
		"invalid body":                 {"InvalidMessageContents", true, fault.Invalid, 1},
		"unknown code, sender's fault": {"Novel", true, fault.Invalid, 1},
		"encryption key denied":        {"KMS.AccessDeniedException", true, fault.Denied, 1},
		"SQS unavailable":              {"InternalError", false, fault.Unavailable, 5},
		"unknown code, SQS's fault":    {"Novel", false, fault.Unavailable, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &service{answer: func(_ string, in map[string]any) any {
				return batch(in, func(id string, _ map[string]any) (string, bool) {
					if id == "1" {
						return c.code, c.sender
					}
					return "", false
				})
			}}
			err := queuesOver(s).Send(t.Context(), "work", [][]byte{[]byte("a"), []byte("b")}, 0)
			sends := len(slices.DeleteFunc(s.calls, func(o string) bool { return o != "SendMessageBatch" }))
			named := err != nil && strings.Contains(err.Error(), c.code) && strings.Contains(err.Error(), "work")
			if !fault.Is(err, c.want) || !named || sends != c.tries {
				t.Errorf(
					"Send = %v after %d requests, want %s with the code and the queue after %d",
					err,
					sends,
					c.want,
					c.tries,
				)
			}
		})
	}
}

func TestSendDoesNotRetryFailedRequest(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(string, map[string]any) any {
		return refusal{http.StatusInternalServerError, "InternalError"}
	}}
	err := queuesOver(s).Send(t.Context(), "work", [][]byte{[]byte("a")}, 0)
	if !fault.Is(err, fault.Unavailable) || len(s.calls) != 2 {
		t.Errorf("Send = %v after %v, want Unavailable after two requests", err, s.calls)
	}
}

func TestAckIgnoresStaleReceiptsAndRetriesFailedEntries(t *testing.T) {
	t.Parallel()
	deleted, failures := map[string]int{}, 2
	s := &service{answer: func(_ string, in map[string]any) any {
		return batch(in, func(_ string, entry map[string]any) (string, bool) {
			receipt := entry["ReceiptHandle"].(string)
			switch {
			case strings.HasPrefix(receipt, "stale"):
				return "ReceiptHandleIsInvalid", true
			case receipt == "slow" && failures > 0:
				failures--
				return "InternalError", false
			}
			deleted[receipt]++
			return "", false
		})
	}}
	if err := queuesOver(s).Ack(t.Context(), "work", []string{"a", "stale 1", "", "slow", "b", "stale 2"}); err != nil {
		t.Fatal(err)
	}
	if len(deleted) != 3 || deleted["a"] != 1 || deleted["slow"] != 1 || deleted["b"] != 1 {
		t.Errorf("deleted %v", deleted)
	}
}

// SQS may refuse a whole batch for one receipt.
func TestAckOfARefusedBatchRemovesTheOthers(t *testing.T) {
	t.Parallel()
	deleted := map[string]int{}
	s := &service{answer: func(operation string, in map[string]any) any {
		if operation == "DeleteMessageBatch" {
			return refusal{http.StatusBadRequest, "ReceiptHandleIsInvalid"}
		}
		if receipt, _ := in["ReceiptHandle"].(string); receipt != "stale" {
			deleted[receipt]++
			return map[string]any{}
		}
		return refusal{http.StatusBadRequest, "ReceiptHandleIsInvalid"}
	}}
	if err := queuesOver(s).Ack(t.Context(), "work", []string{"a", "stale", "b"}); err != nil {
		t.Fatal(err)
	}
	if len(deleted) != 2 || deleted["a"] != 1 || deleted["b"] != 1 {
		t.Errorf("deleted %v", deleted)
	}
}

// Bodies that fill a request by bytes rather than by number are split.
func TestSendSplitsRequestsAtSQSSizeLimit(t *testing.T) {
	t.Parallel()
	got := 0
	s := &service{answer: func(_ string, in map[string]any) any {
		size := 0
		for _, e := range in["Entries"].([]any) {
			size += len(e.(map[string]any)["MessageBody"].(string))
			got++
		}
		if size > 1<<20 {
			t.Errorf("a request has %d bytes of bodies, the limit is 1 MiB", size)
		}
		return batch(in, func(string, map[string]any) (string, bool) { return "", false })
	}}
	body := []byte(strings.Repeat("\x01", 64<<10)) // the largest body, which grows in base64
	if err := queuesOver(s).Send(t.Context(), "work", slices.Repeat([][]byte{body}, 25), 0); err != nil || got != 25 {
		t.Errorf("%d bodies arrived, %v", got, err)
	}
}

func TestSendAsksForURLOfDeletedQueueAgain(t *testing.T) {
	t.Parallel()
	gone := true
	s := &service{answer: func(_ string, in map[string]any) any {
		if gone {
			gone = false
			return refusal{http.StatusBadRequest, "com.amazonaws.sqs#QueueDoesNotExist"}
		}
		return batch(in, func(string, map[string]any) (string, bool) { return "", false })
	}}
	q := queuesOver(s)
	err := q.Send(t.Context(), "work", [][]byte{[]byte("a")}, 0)
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "deploy the stack") {
		t.Errorf("Send to a deleted queue = %v, want NotFound with a remedy", err)
	}
	if err := q.Send(t.Context(), "work", [][]byte{[]byte("a")}, 0); err != nil {
		t.Error(err)
	}
	if want := "GetQueueUrl SendMessageBatch GetQueueUrl SendMessageBatch"; strings.Join(s.calls, " ") != want {
		t.Errorf("calls %v, want %s", s.calls, want)
	}
}

// table is a fake DynamoDB table whose nth response has atOnce(n) documents.
func table(t *testing.T, atOnce func(request int) int) *service {
	request := 0
	return &service{answer: func(_ string, in map[string]any) any {
		request++
		requested := in["RequestItems"].(map[string]any)["docs"].(map[string]any)
		if requested["ConsistentRead"] != true {
			t.Error("BatchGetItem is not a consistent read")
		}
		keys := requested["Keys"].([]any)
		n := min(atOnce(request), len(keys))
		items := []any{}
		for _, k := range keys[:n] {
			key := k.(map[string]any)
			items = append(items, map[string]any{
				"p": key["p"], "k": key["k"], "r": map[string]any{"S": "rev"}, "v": map[string]any{"B": "eA=="},
			})
		}
		out := map[string]any{"Responses": map[string]any{"docs": items}}
		if n < len(keys) {
			out["UnprocessedKeys"] = map[string]any{"docs": map[string]any{"Keys": keys[n:], "ConsistentRead": true}}
		}
		return out
	}}
}

func TestGetManyRequestsUnprocessedKeysAgain(t *testing.T) {
	t.Parallel()
	s := table(t, func(request int) int { return []int{3, 0, 40}[request%3] })
	var keys []string
	for i := range 250 {
		keys = append(keys, fmt.Sprintf("shard/%d", i))
	}
	docs, err := NewDocuments(s.config(), "docs", DocumentOptions{}).GetMany(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range docs {
		if d.Key != keys[i] || string(d.Value) != "x" {
			t.Errorf("document %d is %+v", i, d)
		}
	}
}

func TestGetManyFailsWithThrottledIfNoDocumentComes(t *testing.T) {
	t.Parallel()
	s := table(t, func(int) int { return 0 })
	_, err := NewDocuments(s.config(), "docs", DocumentOptions{}).GetMany(t.Context(), []string{"a"})
	if !fault.Is(err, fault.Throttled) || len(s.calls) != 5 {
		t.Errorf("GetMany = %v after %d requests, want Throttled after 5", err, len(s.calls))
	}
}

func TestMissingTableIsNamedWithRemedy(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(string, map[string]any) any {
		return refusal{http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}
	}}
	d := NewDocuments(s.config(), "docs", DocumentOptions{})
	_, err := d.Get(t.Context(), "run/1")
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "docs") ||
		!strings.Contains(err.Error(), "cloud.region") {
		t.Errorf("Get = %v, want NotFound with the table and a remedy", err)
	}
	if err := d.Ping(t.Context()); err == nil {
		t.Error("Ping of a missing table succeeded")
	}
}
