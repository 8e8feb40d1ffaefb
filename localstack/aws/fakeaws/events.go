package fakeaws

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"
)

// announceObject invokes submit for an object that a request created, as the
// bucket's notification does.
func (c *Cloud) announceObject(q *request, answer *httptest.ResponseRecorder) {
	names := map[string]string{"PutObject": "Put", "CopyObject": "Copy",
		"CompleteMultipartUpload": "CompleteMultipartUpload"}
	name := names[q.operation]
	bucket, key, _ := strings.Cut(strings.TrimPrefix(q.http.URL.Path, "/"), "/")
	if name == "" || answer.Code != http.StatusOK || bucket != c.at.S3.Bucket ||
		!strings.HasPrefix(key, c.at.S3.Prefix+"prompts/") {
		return
	}
	if name != "Put" && isError(answer.Body.Bytes()) {
		return // S3 reports such an error in the body of a 200
	}
	// Some answers of the emulator have no version.
	created := c.internalRequest(httptest.NewRequestWithContext(c.ctx, http.MethodGet,
		c.options.Backend+q.http.URL.EscapedPath(), nil))
	o := Object{Key: key, Version: answer.Header().Get("X-Amz-Version-Id"), Size: int64(created.Body.Len())}
	if o.Version == "" {
		o.Version = created.Header().Get("X-Amz-Version-Id")
	}
	c.invokeAsync("submit", S3Event(bucket, "ObjectCreated:"+name, o), q.http.Header.Get(traceHeader))
}

func isError(body []byte) bool {
	var root struct{ XMLName xml.Name }
	return xml.Unmarshal(body, &root) == nil && root.XMLName.Local == "Error"
}

// Object is the object of an event.
type Object struct {
	Key, Version string
	Size         int64
}

// encodeKey encodes a key as S3's notifications do: as in a form, except for
// slashes.
func encodeKey(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }

// S3Event returns S3's notification of an object.
func S3Event(bucket, name string, o Object) []byte {
	return encode(map[string]any{"Records": []any{map[string]any{
		"eventVersion": "2.1", "eventSource": "aws:s3", "awsRegion": Region, "eventTime": now(), "eventName": name,
		"s3": map[string]any{"s3SchemaVersion": "1.0", "configurationId": "prompts",
			"bucket": map[string]any{"name": bucket, "arn": "arn:aws:s3:::" + bucket},
			"object": map[string]any{"key": encodeKey(o.Key), "size": o.Size, "eTag": "x", "versionId": o.Version,
				"sequencer": "0055AED6DCD90281E5"}},
	}}})
}

// EventBridgeS3Event returns EventBridge's event of a new object. Its key is not
// encoded.
func EventBridgeS3Event(bucket string, o Object) []byte {
	return EventBridgeEvent("aws.s3", "Object Created",
		map[string]any{"version": "0", "bucket": map[string]any{"name": bucket},
			"object": map[string]any{"key": o.Key, "size": o.Size, "etag": "x", "version-id": o.Version}, "reason": "PutObject"})
}

// EventBridgeEvent returns an event of EventBridge.
func EventBridgeEvent(source, kind string, detail any) []byte {
	return encode(map[string]any{"version": "0", "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718", "source": source,
		"detail-type": kind,
		"account":     "000000000000", "time": now(), "region": Region, "resources": []string{}, "detail": detail})
}

// encode encodes a value of this package as JSON.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the value has a type that cannot be encoded
	}
	return b
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05Z") }

// schedule calls reclaim every minute.
func (c *Cloud) schedule() {
	for c.wait(c.options.Minute) {
		c.Tick()
	}
}

// Tick runs one minute of the schedule.
func (c *Cloud) Tick() {
	c.InvokeAsync("reclaim", EventBridgeEvent("aws.events", "Scheduled Event", map[string]any{}))
}
