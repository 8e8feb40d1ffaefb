package fakeaws

import (
	"io"
	"net/http"
	"net/http/httptest"
)

// Faults are numbers of failing requests per 1,000. The SDKs retry them.
type Faults struct {
	// LostReplies loses replies of DynamoDB. The request was performed.
	LostReplies int
	// Throttled rejects requests to DynamoDB, S3 and SQS.
	Throttled int
}

// throttle throttles a request at random and reports whether it did.
func (c *Cloud) throttle(w http.ResponseWriter, q *request) bool {
	if c.options.Faults.Throttled == 0 || c.chance(1000) >= int64(c.options.Faults.Throttled) {
		return false
	}
	switch q.service {
	case DynamoDB:
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException",`+
			`"message":"Rate exceeded"}`)
	case SQS:
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazonaws.sqs#RequestThrottled","message":"Rate exceeded"}`)
	case S3:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
	default:
		return false
	}
	c.Meter.fault(q, "throttled")
	return true
}

// loseReply closes the connection instead of answering, at random, and reports
// whether it did.
func (c *Cloud) loseReply(w http.ResponseWriter, q *request, status int) bool {
	if q.service != DynamoDB || status >= http.StatusInternalServerError || c.options.Faults.LostReplies == 0 ||
		c.chance(1000) >= int64(c.options.Faults.LostReplies) {
		return false
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	_ = conn.Close() // the injected fault
	c.Meter.fault(q, "lost")
	return true
}

// internalRequest sends a request to the emulator without counting it.
func (c *Cloud) internalRequest(r *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	c.backend.ServeHTTP(answer, r)
	return answer
}
