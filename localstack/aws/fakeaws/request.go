package fakeaws

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// The services by which requests are counted.
const (
	S3          = "S3"
	DynamoDB    = "DynamoDB"
	SQS         = "SQS"
	Secrets     = "SecretsManager"
	Lambda      = "Lambda"
	AutoScaling = "AutoScaling"
	EventBridge = "EventBridge"
	EC2         = "EC2"
	Quotas      = "ServiceQuotas"
	Systems     = "SystemsManager"
	STS         = "STS"
	Other       = "other"
)

// request is a parsed request.
type request struct {
	http      *http.Request
	service   string
	operation string
	resource  string
	caller    string // the name of its access key
	body      []byte
	form      url.Values // of services that use forms
}

// readRequest reads and parses a request. It reads the whole body, since an answer
// before its end would close the connection.
func readRequest(r *http.Request) (*request, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	// The body has been read, and the emulator's "100 Continue" would be taken for
	// the answer.
	r.Header.Del("Expect")
	q := &request{http: r, body: body, caller: caller(r)}
	target, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch {
	case strings.HasPrefix(target, "DynamoDB"):
		q.service, q.operation = DynamoDB, operation
	case target == "AmazonSQS":
		q.service, q.operation = SQS, operation
	case target == "secretsmanager":
		q.service, q.operation = Secrets, operation
	case target == "AWSEvents":
		q.service, q.operation = EventBridge, operation
	case target == "ServiceQuotasV20190624":
		q.service, q.operation = Quotas, operation
	case target == "AmazonSSM":
		q.service, q.operation = Systems, operation
	case target != "":
		q.service, q.operation = Other, operation
	case strings.HasPrefix(r.URL.Path, functionsPath):
		q.service, q.operation = Lambda, "Invoke"
	case r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"),
		"application/x-www-form-urlencoded"):
		if q.form, err = url.ParseQuery(string(body)); err != nil {
			return nil, fmt.Errorf("read the form: %w", err)
		}
		q.service, q.operation = AutoScaling, q.form.Get("Action")
		switch scope(r) {
		case "ec2":
			q.service = EC2
		case "sts":
			q.service = STS
		}
	default:
		q.service, q.operation = S3, s3Operation(r)
	}
	return q, nil
}

// caller is the name of the access key that signed the request.
func caller(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	if rest == "" { // of an address that was signed
		rest = r.URL.Query().Get("X-Amz-Credential")
	}
	key, _, _ := strings.Cut(rest, "/")
	return key
}

// scope is the name of the service that a request was signed for, "" if it was not.
func scope(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	scope, _, _ := strings.Cut(rest, ",")
	if parts := strings.Split(scope, "/"); len(parts) == 5 { // key, date, region, service, aws4_request
		return parts[3]
	}
	return ""
}

// getNotification is the operation that reads the notifications of a bucket.
const getNotification = "GetBucketNotificationConfiguration"

// s3Operation returns the S3 operation of a request.
func s3Operation(r *http.Request) string {
	query := r.URL.Query()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	copied := r.Header.Get("X-Amz-Copy-Source") != ""
	switch {
	case r.Method == http.MethodHead:
		return "HeadObject"
	case r.Method == http.MethodGet && query.Has("versioning"):
		return "GetBucketVersioning"
	case r.Method == http.MethodGet && query.Has("notification"):
		return getNotification
	case r.Method == http.MethodGet && query.Has("versions"):
		return "ListObjectVersions"
	case r.Method == http.MethodGet && query.Has("uploads"):
		return "ListMultipartUploads"
	case r.Method == http.MethodGet && key == "":
		return "ListObjectsV2"
	case r.Method == http.MethodGet:
		return "GetObject"
	case r.Method == http.MethodPut && query.Has("partNumber") && copied:
		return "UploadPartCopy"
	case r.Method == http.MethodPut && query.Has("partNumber"):
		return "UploadPart"
	case r.Method == http.MethodPut && key == "":
		return "Bucket" // created or configured
	case r.Method == http.MethodPut && copied:
		return "CopyObject"
	case r.Method == http.MethodPut:
		return "PutObject"
	case r.Method == http.MethodPost && query.Has("uploads"):
		return "CreateMultipartUpload"
	case r.Method == http.MethodPost && query.Has("uploadId"):
		return "CompleteMultipartUpload"
	case r.Method == http.MethodPost:
		return "DeleteObjects"
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		return "AbortMultipartUpload"
	}
	return "DeleteObject"
}
