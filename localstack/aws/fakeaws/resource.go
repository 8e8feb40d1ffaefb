package fakeaws

import (
	"encoding/json"
	"strings"
)

// resource says what a request is about: the first part of a document's or an
// object's key, a queue or a function, without what begins its name in this
// deployment. "" is everything else.
func (c *Cloud) resource(q *request) string {
	switch q.service {
	case DynamoDB:
		return documentOf(q.body)
	case SQS:
		var asked struct{ QueueURL, QueueName string }
		_ = json.Unmarshal(q.body, &asked) // a request without a queue is about none
		name := asked.QueueURL[strings.LastIndex(asked.QueueURL, "/")+1:] + asked.QueueName
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

// documentOf is the first part of the key of the documents that a request is
// about.
func documentOf(body []byte) string {
	type key struct {
		K, P struct{ S string }
	}
	var asked struct {
		Key, Item                 key
		RequestItems              map[string]struct{ Keys []key }
		ExpressionAttributeValues map[string]struct{ S string }
	}
	_ = json.Unmarshal(body, &asked) // a request of another kind has no key
	name := asked.Key.K.S + asked.Item.K.S
	for _, table := range asked.RequestItems {
		for _, k := range table.Keys {
			name = k.K.S
		}
	}
	if name == "" {
		for _, v := range asked.ExpressionAttributeValues {
			if strings.HasSuffix(v.S, "/") { // a partition of what is listed
				name = v.S
			}
		}
	}
	first, _, _ := strings.Cut(name, "/")
	return first
}
