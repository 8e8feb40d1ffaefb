package fakeaws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollout/shared/aws"
)

const (
	// mappedQueue is the queue that Lambda polls, without the prefix. Its function
	// has the same name.
	mappedQueue = "coordinate"
	// mappingPollers is the largest number of concurrent invocations for it.
	mappingPollers = 2
	largestBatch   = 1000
	pollGap        = 25 * time.Millisecond
	// mapping is the caller name of Lambda's own requests in the Meter.
	mapping = "mapping"
)

// message is a received message, as SQS returns it.
type message struct {
	MessageID         string                     `json:"MessageId"`
	ReceiptHandle     string                     `json:"ReceiptHandle"`
	Body              string                     `json:"Body"`
	Attributes        map[string]string          `json:"Attributes"`
	MessageAttributes map[string]json.RawMessage `json:"MessageAttributes"`
}

// mapQueue polls the queue and invokes its function with batches.
func (c *Cloud) mapQueue() {
	url := ""
	for c.ctx.Err() == nil {
		if url == "" {
			if url = c.queueURL(c.at.SQS.Prefix + mappedQueue); url == "" && !c.wait(c.options.BatchWindow) {
				return
			}
			continue
		}
		if batch := c.gather(url); len(batch) > 0 {
			c.invokeBatch(url, batch)
		}
	}
}

// gather receives messages until the window has passed or a batch is full. It polls
// often, since a waiting long poll of the emulator misses messages.
func (c *Cloud) gather(url string) (batch []message) {
	var until time.Time
	for len(batch) < c.options.BatchSize && c.ctx.Err() == nil {
		var got struct{ Messages []message }
		err := c.sqs("ReceiveMessage", map[string]any{"QueueUrl": url,
			"MaxNumberOfMessages":         min(10, c.options.BatchSize-len(batch)),
			"VisibilityTimeout":           int(6 * c.options.Timeout.Seconds()),
			"MessageSystemAttributeNames": []string{"All"}, "AttributeNames": []string{"All"},
			"MessageAttributeNames": []string{"All"}}, &got)
		if err != nil {
			return batch
		}
		if len(got.Messages) > 0 { // polls of an idle queue are known without counting
			c.Meter.note(RequestKind{SQS, "ReceiveMessage", mappedQueue, mapping})
		}
		batch = append(batch, got.Messages...)
		switch {
		case len(batch) == 0:
			c.wait(pollGap)
			return nil
		case until.IsZero():
			until = time.Now().Add(c.options.BatchWindow)
		case time.Now().After(until):
			return batch
		}
		if len(got.Messages) == 0 && !c.wait(min(pollGap, time.Until(until))) {
			return batch
		}
	}
	return batch
}

// invokeBatch calls the function with messages and deletes those that it does not
// report as failed. If the call fails, all messages come back. Each record has the
// header of its own chain. The invocation belongs to the longest one: AWS does not
// document to which, and any other is shorter.
func (c *Cloud) invokeBatch(url string, batch []message) {
	trace := ""
	records := make([]map[string]any, len(batch))
	for i, m := range batch {
		c.mu.Lock()
		own := c.traces[m.MessageID]
		c.mu.Unlock()
		attributes := maps.Clone(m.Attributes)
		if own != "" {
			attributes[aws.TraceAttribute] = own
		}
		trace = longer(trace, own)
		records[i] = map[string]any{"messageId": m.MessageID, "receiptHandle": m.ReceiptHandle, "body": m.Body,
			"attributes":        attributes,
			"messageAttributes": lambdaAttributes(m.MessageAttributes), "eventSource": "aws:sqs", "awsRegion": Region,
			"eventSourceARN": "arn:aws:sqs:" + Region + ":000000000000:" + c.at.SQS.Prefix + mappedQueue}
	}
	reply, err := c.lambda.call(mappedQueue, encode(map[string]any{"Records": records}), trace)
	var answer struct {
		BatchItemFailures []struct{ ItemIdentifier string }
	}
	if err == nil && !reply.Failed {
		err = json.Unmarshal(reply.Body, &answer)
	} else if err == nil {
		err = errors.New(string(reply.Body))
	}
	if err != nil {
		c.options.Log.Warn("a batch failed", "messages", len(batch), "error", err)
		return
	}
	failed := map[string]bool{}
	for _, f := range answer.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	var done []map[string]any
	for i, m := range batch {
		if !failed[m.MessageID] {
			done = append(done, map[string]any{"Id": strconv.Itoa(i), "ReceiptHandle": m.ReceiptHandle})
		}
	}
	for some := range slices.Chunk(done, 10) {
		c.Meter.note(RequestKind{SQS, "DeleteMessageBatch", mappedQueue, mapping})
		if err := c.sqs("DeleteMessageBatch", map[string]any{"QueueUrl": url, "Entries": some}, nil); err != nil {
			c.options.Log.Warn("messages are not deleted", "error", err)
		}
	}
}

// lambdaAttributes renames the fields of attributes as Lambda does.
func lambdaAttributes(attributes map[string]json.RawMessage) map[string]any {
	out := map[string]any{}
	for name, raw := range attributes {
		var a struct{ StringValue, DataType string }
		if json.Unmarshal(raw, &a) == nil {
			out[name] = map[string]string{"stringValue": a.StringValue, "dataType": a.DataType}
		}
	}
	return out
}

// follow remembers the chain that sent a message.
func (c *Cloud) follow(q *request, answer *httptest.ResponseRecorder) {
	trace := q.http.Header.Get(traceHeader)
	if trace == "" || answer.Code != http.StatusOK || !strings.HasPrefix(q.operation, "SendMessage") {
		return
	}
	var result struct {
		MessageID  string `json:"MessageId"`
		Successful []struct {
			MessageID string `json:"MessageId"`
		}
	}
	if json.Unmarshal(answer.Body.Bytes(), &result) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traces[result.MessageID] = trace
	for _, s := range result.Successful {
		c.traces[s.MessageID] = trace
	}
}

// queueURL is the URL of a queue, "" if the queue does not exist.
func (c *Cloud) queueURL(name string) string {
	var found struct{ QueueURL string }
	if err := c.sqs("GetQueueUrl", map[string]any{"QueueName": name}, &found); err != nil {
		return ""
	}
	return found.QueueURL
}

// send sends a message in the name of AWS.
func (c *Cloud) send(queue string, body []byte) error {
	url := c.queueURL(queue)
	if url == "" {
		return fmt.Errorf("the queue %s does not exist", queue)
	}
	return c.sqs("SendMessage", map[string]any{"QueueUrl": url, "MessageBody": string(body)}, nil)
}

// sqs calls an operation of the emulator's SQS in the name of AWS. The request is
// not counted.
func (c *Cloud) sqs(operation string, in, out any) error {
	r := httptest.NewRequestWithContext(c.ctx, http.MethodPost, c.options.Backend+"/", bytes.NewReader(encode(in)))
	r.Header.Set("X-Amz-Target", "AmazonSQS."+operation)
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=000000000000/20260101/"+Region+"/sqs/aws4_request, SignedHeaders=host, Signature=0")
	answer := c.internalRequest(r)
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%s: %d: %s", operation, answer.Code, answer.Body)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Body.Bytes(), out); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}
