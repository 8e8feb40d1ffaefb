package fakeaws

import (
	"encoding/json"
	"strings"
)

// resourceOf names the resource of a request: the first part of a document's or an
// object's key, a queue or a function, without the deployment's prefix. Other
// requests have the name "".
func (c *Cloud) resourceOf(q *request) string {
	switch q.service {
	case DynamoDB:
		return documentOf(q.body)
	case SQS:
		var in struct{ QueueURL, QueueName string }
		_ = json.Unmarshal(q.body, &in) // other requests name no queue
		name := in.QueueURL[strings.LastIndex(in.QueueURL, "/")+1:] + in.QueueName
		return strings.TrimPrefix(name, c.at.SQS.Prefix)
	case Lambda:
		return c.functionOf(q)
	case S3:
		_, key, _ := strings.Cut(strings.TrimPrefix(q.http.URL.Path, "/"), "/")
		if key == "" {
			key = q.http.URL.Query().Get("prefix")
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(key, c.at.S3.Prefix), "/")
		return first
	}
	return ""
}

// documentOf is the first part of the key of a request's documents.
func documentOf(body []byte) string {
	type key struct {
		K, P struct{ S string }
	}
	var in struct {
		Key, Item                 key
		RequestItems              map[string]struct{ Keys []key }
		ExpressionAttributeValues map[string]struct{ S string }
	}
	_ = json.Unmarshal(body, &in) // other requests have no key
	name := in.Key.K.S + in.Item.K.S
	for _, table := range in.RequestItems {
		for _, k := range table.Keys {
			name = k.K.S
		}
	}
	if name == "" {
		for _, v := range in.ExpressionAttributeValues {
			if strings.HasSuffix(v.S, "/") { // the partition of a listing
				name = v.S
			}
		}
	}
	first, _, _ := strings.Cut(name, "/")
	return first
}
