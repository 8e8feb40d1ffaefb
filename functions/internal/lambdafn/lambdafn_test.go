package lambdafn

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	lambdaevents "github.com/aws/aws-lambda-go/events"

	"rollout/events"
	"rollout/shared/aws"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

func ports() host.Ports { return host.Ports{Log: slog.New(slog.DiscardHandler)} }

// Whatever the key, it comes out as it is in the bucket, from either source.
func FuzzKeysAreDecodedOnce(f *testing.F) {
	for _, key := range []string{"prompts/a b.jsonl", "a+b", "a%2Bb", "100%", "a&b=c?", "日本 語", "%25", `quo"te`} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		key = strings.ToValidUTF8(key, "")
		raw, err := json.Marshal(key)
		if err != nil {
			t.Skip()
		}
		for source, event := range map[string]string{
			"S3": fmt.Sprintf(`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:CompleteMultipartUpload","s3":{"bucket":{"name":"b"},"object":{"key":%q,"size":7,"versionId":"v"}}}]}`,
				url.QueryEscape(key)),
			"EventBridge": fmt.Sprintf(`{"source":"aws.s3","detail-type":"Object Created","detail":{"bucket":{"name":"b"},"object":{"key":%s,"size":7,"version-id":"v"}}}`, raw),
		} {
			got, err := Created([]byte(event))
			if want := (events.ObjectCreated{Bucket: "b", Key: key, Version: "v", Size: 7}); err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q came out as %+v, %v", source, key, got, err)
			}
		}
	})
}

func FuzzEventsOfStrangers(f *testing.F) {
	for _, event := range []string{`{}`, `[]`, `null`, `{"Records":null}`, `{"Records":[{}]}`, `{"Records":[{"eventSource":"aws:s3","eventName":"ObjectRemoved:Delete"}]}`, `{"Records":{}}`} {
		f.Add(event)
	}
	f.Fuzz(func(t *testing.T, event string) {
		created, err := Created([]byte(event))
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
		for _, c := range created {
			if c.Version == "" {
				t.Errorf("%+v can't be pinned", c)
			}
		}
	})
}

// One object that fails keeps no other from being taken.
func TestEveryObjectOfAnEventIsTaken(t *testing.T) {
	t.Parallel()
	record := func(key string) string {
		return fmt.Sprintf(`{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":%q,"versionId":"v"}}}`, key)
	}
	var taken []string
	f := Objects(ports(), func(_ context.Context, e events.ObjectCreated) error {
		taken = append(taken, e.Key)
		if e.Key == "bad" {
			return fault.New(fault.Unavailable, "not now")
		}
		return nil
	})
	err := f(t.Context(), json.RawMessage(`{"Records":[`+record("bad")+","+record("%zz")+","+record("good")+`]}`))
	if strings.Join(taken, " ") != "bad good" || err == nil || !strings.Contains(err.Error(), "take the object bad: not now") || !strings.Contains(err.Error(), "%zz") {
		t.Errorf("taken %v, %v", taken, err)
	}
}

func TestMessagesThatAreNotDoneWithComeBack(t *testing.T) {
	t.Parallel()
	var got []queue.Message
	f := Messages(ports(), func(_ context.Context, ms []queue.Message) (done []string) {
		got = ms
		for _, m := range ms {
			if string(m.Body) != "later" {
				done = append(done, m.Receipt)
			}
		}
		return done
	})
	encoding := "base64"
	event := lambdaevents.SQSEvent{Records: []lambdaevents.SQSMessage{
		{MessageId: "1", ReceiptHandle: "r1", Body: "now", Attributes: map[string]string{"ApproximateReceiveCount": "3"}},
		{MessageId: "2", ReceiptHandle: "r2", Body: "later"},
		{MessageId: "3", ReceiptHandle: "r3", Body: "AAE=", MessageAttributes: map[string]lambdaevents.SQSMessageAttribute{aws.EncodingAttribute: {StringValue: &encoding, DataType: "String"}}},
	}}
	out, err := f(t.Context(), event)
	text, _ := json.Marshal(out)
	if err != nil || string(text) != `{"batchItemFailures":[{"itemIdentifier":"2"}]}` {
		t.Errorf("%s, %v", text, err)
	}
	if got[0].Receives != 3 || got[1].Receives != 1 || string(got[2].Body) != "\x00\x01" {
		t.Errorf("got %+v", got)
	}
	out, err = f(t.Context(), lambdaevents.SQSEvent{})
	if text, _ := json.Marshal(out); err != nil || string(text) != `{"batchItemFailures":[]}` {
		t.Errorf("of nothing: %s, %v", text, err)
	}
}

func TestAFunctionHandsBackBeforeItsTimeIsUp(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]time.Duration{time.Minute: margin, time.Second: time.Second / 4} {
		deadline := time.Now().Add(limit)
		outer, cancel := context.WithDeadline(t.Context(), deadline)
		ctx, end := early(outer)
		at, ok := ctx.Deadline()
		if left := deadline.Sub(at); !ok || left > want || left < want*9/10 {
			t.Errorf("with %v: it ends %v before, want %v", limit, left, want)
		}
		end()
		cancel()
	}
	if ctx, end := early(t.Context()); ctx.Err() != nil {
		t.Error("without a deadline it ends at once")
	} else {
		end()
	}
}

func TestAFunctionTellsEverythingThatIsWrongWithItsEnvironment(t *testing.T) {
	t.Parallel()
	set := map[string]string{BucketVariable: "b", ConfigVariable: "schema_version = 1\nbuckt = 7\n[health]\nself_fence_timeout = \"9s\"\n"}
	_, err := Open(t.Context(), "submit", func(name string) string { return set[name] })
	if !fault.Is(err, fault.Invalid) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"submit", TableVariable + " is not set", QueuesVariable + " is not set", "buckt", "self_fence"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message says nothing of %s: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), BucketVariable+" is") {
		t.Errorf("%v", err)
	}
}
