package fakeaws

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"rollout/localstack/aws/iam"
)

// authorize refuses a request that the caller's role does not allow, and reports
// whether it did. A caller that is neither a function nor an instance is a user:
// with the name of a user policy it has that policy, else it may do everything.
func (c *Cloud) authorize(w http.ResponseWriter, q *request) bool {
	if c.options.Roles == nil {
		return false
	}
	policy, ok := c.policy(q)
	if !ok {
		return false
	}
	requests := c.iamRequests(q)
	for _, r := range requests {
		requests = append(requests, c.options.Roles.KeyRequests(r)...)
	}
	for _, r := range requests {
		err := policy.Check(r)
		if err == nil {
			c.note(q.caller, r.Action)
			continue
		}
		c.options.Log.ErrorContext(c.ctx, "a role lacks a permission", "caller", q.caller, "operation",
			q.operation, "error", err)
		c.mu.Lock()
		c.denied = append(c.denied, q.caller+": "+err.Error())
		c.mu.Unlock()
		deny(w, q.service)
		return true
	}
	return false
}

// DeniedRequests returns the requests that roles and policies did not allow, with
// their callers.
func (c *Cloud) DeniedRequests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.denied)
}

// note notes that a policy allowed an action.
func (c *Cloud) note(caller, action string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.allowed[caller] == nil {
		c.allowed[caller] = map[string]bool{}
	}
	c.allowed[caller][action] = true
}

// AllowedActions returns the actions that a caller's policy was asked for and allowed,
// sorted.
func (c *Cloud) AllowedActions(caller string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.allowed[caller]))
}

// deny answers that access is denied, in the format of the service.
func deny(w http.ResponseWriter, service string) {
	switch service {
	case S3:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
	case EC2:
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		refuseEC2(w, http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation.")
	case AutoScaling:
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>`+
			`<Message>not authorized</Message></Error></ErrorResponse>`)
	default:
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-ErrorType", "AccessDeniedException")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"AccessDeniedException","message":"not authorized"}`)
	}
}

// policy returns the caller's policy; ok is false if the caller may do everything. A user to
// whom several policies are attached names them all, with + between them.
func (c *Cloud) policy(q *request) (p iam.Policy, ok bool) {
	if slices.Contains(functions, q.caller) {
		return c.options.Roles.Function(c.at.FunctionName(q.caller))
	}
	for name := range strings.SplitSeq(q.caller, "+") {
		one, known := c.options.Roles.User(name)
		p, ok = append(p, one...), ok || known
	}
	if ok {
		return p, true
	}
	return c.options.Roles.Machine(q.session())
}

// session is the name of the session that signed the request, "" for a user.
func (q *request) session() string { return q.http.Header.Get("X-Amz-Security-Token") }

// groupOf is the group of an instance, "" if the instance has left its group.
func (g *Groups) groupOf(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, at := range g.groups {
		for _, in := range at.instances {
			if in.ID == id {
				return name
			}
		}
	}
	return ""
}

// iamRequests returns the actions of a request, with their resources and condition
// keys.
func (c *Cloud) iamRequests(q *request) []iam.Request {
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":" + Region + ":" + iam.Account + ":" + resource
	}
	one := func(action, resource string, context map[string][]string) []iam.Request {
		return []iam.Request{{Action: action, Resource: resource, Context: context}}
	}
	switch q.service {
	case S3:
		return s3IAMRequests(q)
	case DynamoDB:
		return one("dynamodb:"+q.operation, arn("dynamodb", "table/"+c.at.DynamoDB.Table), leadingKeys(q.body))
	case SQS:
		var in struct{ QueueURL, QueueName string }
		_ = json.Unmarshal(q.body, &in) // an invalid request is refused below
		name := in.QueueName
		if name == "" {
			name = in.QueueURL[strings.LastIndexByte(in.QueueURL, '/')+1:]
		}
		return one("sqs:"+strings.TrimSuffix(q.operation, "Batch"), arn("sqs", name), nil)
	case Secrets:
		var in struct{ SecretID string }
		_ = json.Unmarshal(q.body, &in)
		return one("secretsmanager:"+q.operation, arn("secretsmanager", "secret:"+in.SecretID+"-AbCdEf"), nil)
	case Lambda:
		name, _, _ := strings.Cut(strings.TrimPrefix(q.http.URL.Path, functionsPath), "/")
		return one("lambda:InvokeFunction", arn("lambda", "function:"+name), nil)
	case EventBridge:
		if q.operation == "ListRuleNamesByTarget" { // it knows no resources
			return one("events:"+q.operation, "*", nil)
		}
		var all []iam.Request
		for _, bus := range busesOf(q) {
			all = append(all, iam.Request{Action: "events:" + q.operation, Resource: arn("events", "event-bus/"+bus)})
		}
		return all
	case AutoScaling:
		group := q.form.Get("AutoScalingGroupName")
		if id := q.form.Get("InstanceId"); id != "" {
			group = cmp.Or(c.Groups.groupOf(id), q.session())
		}
		return one("autoscaling:"+q.operation, arn("autoscaling", "autoScalingGroup:7-8:autoScalingGroupName/"+group), nil)
	case EC2: // the doctor's actions know no resources
		return one("ec2:"+q.operation, "*", nil)
	case Quotas:
		return one("servicequotas:"+q.operation, "*", nil)
	case Systems:
		var in struct{ Name string }
		_ = json.Unmarshal(q.body, &in)
		owner := iam.Account
		if strings.HasPrefix(in.Name, "/aws/") { // a public parameter
			owner = ""
		}
		return one("ssm:"+q.operation, "arn:aws:ssm:"+Region+":"+owner+":parameter"+in.Name, nil)
	case STS: // anyone may ask who they are
		return nil
	}
	return one(q.operation, "unknown", nil)
}

// leadingKeys is the condition key with the partitions of a request's items.
func leadingKeys(body []byte) map[string][]string {
	type item struct {
		P struct{ S string } `json:"p"`
	}
	var in struct {
		Key, Item                 item
		ExpressionAttributeValues map[string]struct{ S string }
		RequestItems              map[string]struct{ Keys []item }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil
	}
	keys := map[string]bool{in.Key.P.S: true, in.Item.P.S: true, in.ExpressionAttributeValues[":p"].S: true}
	for _, t := range in.RequestItems {
		for _, k := range t.Keys {
			keys[k.P.S] = true
		}
	}
	delete(keys, "")
	return map[string][]string{"dynamodb:LeadingKeys": slices.Sorted(maps.Keys(keys))}
}

// s3IAMRequests returns the actions of an S3 request. S3 reports a missing object
// only to callers that may list the bucket, so that is always required.
func s3IAMRequests(q *request) []iam.Request {
	query := q.http.URL.Query()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(q.http.URL.Path, "/"), "/")
	arn := "arn:aws:s3:::" + bucket
	get := func(object, version string) iam.Request {
		if version != "" {
			return iam.Request{Action: "s3:GetObjectVersion", Resource: object}
		}
		return iam.Request{Action: "s3:GetObject", Resource: object}
	}
	put := func(creates string) iam.Request {
		context := map[string][]string{"s3:ObjectCreationOperation": {creates}}
		if none := q.http.Header.Get("If-None-Match"); none != "" {
			context["s3:if-none-match"] = []string{none}
		}
		return iam.Request{Action: "s3:PutObject", Resource: arn + "/" + key, Context: context}
	}
	switch q.operation {
	case "GetObject", "HeadObject":
		return []iam.Request{get(arn+"/"+key, query.Get("versionId")), {Action: "s3:ListBucket", Resource: arn}}
	case "PutObject", "CompleteMultipartUpload":
		return []iam.Request{put("true")}
	case "CreateMultipartUpload", "UploadPart":
		return []iam.Request{put("false")}
	case "UploadPartCopy":
		from, version, _ := strings.Cut(q.http.Header.Get("X-Amz-Copy-Source"), "?versionId=")
		if decoded, err := url.PathUnescape(from); err == nil {
			from = decoded
		}
		return []iam.Request{put("false"), get("arn:aws:s3:::"+strings.TrimPrefix(from, "/"), version)}
	case "AbortMultipartUpload", "DeleteObject", "GetBucketVersioning":
		resource := arn
		if key != "" {
			resource += "/" + key
		}
		return []iam.Request{{Action: "s3:" + q.operation, Resource: resource}}
	case getNotification:
		return []iam.Request{{Action: "s3:GetBucketNotification", Resource: arn}}
	case "ListObjectVersions":
		return []iam.Request{{Action: "s3:ListBucketVersions", Resource: arn,
			Context: map[string][]string{"s3:prefix": {query.Get("prefix")}}}}
	}
	return []iam.Request{{Action: "s3:" + q.operation, Resource: arn + "/" + key}}
}
