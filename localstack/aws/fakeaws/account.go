package fakeaws

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"rollout/localstack/aws/iam"
	"rollout/shared/config"
	"rollout/shared/record"
)

// Account is what the doctor sees of the account besides the stack's own resources. It must
// not be changed while the server answers.
type Account struct {
	// Quotas are the limits of EC2 by their codes. Example: "L-3819A6DF"
	Quotas map[string]float64
	// Zones are the availability zones that offer each machine type.
	Zones map[string][]string
	// Parameters are those of Systems Manager.
	Parameters map[string]string
	// Images are the ids of machine images.
	Images []string
	// ImageState is that of all images; default: available.
	ImageState string
	// Notifications are those of the bucket, which also tells EventBridge if that is set.
	Notifications []Notification
	EventBridge   bool
	// Rules are the names of EventBridge's rules by the function that they invoke.
	Rules map[string][]string
	// Ahead is the services' time minus this machine's.
	Ahead time.Duration
	// Silent are services that don't answer, by their names in requests. Example: "ec2"
	Silent []string
}

// Notification says which function the bucket invokes for which objects.
type Notification struct{ Function, Prefix, Suffix, Event string }

// ownImage and trainingImage are the parameters of the machine images that the stack takes by
// default.
var (
	ownImage      = config.Deployment{}.ImageOf(config.Pool{})
	trainingImage = config.Deployment{}.ImageOf(config.Pool{Executor: config.ExecutorTrain})
)

// HealthyAccount returns the account of a deployment in which its pools' machines start.
func HealthyAccount(d config.Deployment) Account {
	a := Account{
		Quotas: map[string]float64{"L-3819A6DF": 256, "L-DB2E81BA": 64, "L-7212CCBC": 0, "L-417A185B": 0, "L-C4BD4855": 0,
			"L-34B43A08": 640, "L-1216C47A": 640},
		Zones:      map[string][]string{},
		Parameters: map[string]string{ownImage: "ami-0123456789abcdef0", trainingImage: "ami-0123456789abcdef1"},
		Notifications: []Notification{{Function: d.Cloud.FunctionName("submit"), Prefix: d.Cloud.S3.Prefix +
			record.PromptsPrefix, Event: "s3:ObjectCreated:*"}},
		Rules: map[string][]string{},
	}
	for _, t := range d.GroupTypes() {
		a.Zones[t] = []string{Region + "a", Region + "b", Region + "-bos-1a"}
	}
	return a
}

// serveAccount answers what the doctor asks about the account, and reports whether the
// request was that.
func (c *Cloud) serveAccount(w http.ResponseWriter, q *request) bool {
	switch {
	case q.service == EC2:
		c.serveEC2(w, q)
	case q.service == Quotas:
		c.serveQuotas(w, q)
	case q.service == Systems:
		var in struct{ Name string }
		_ = json.Unmarshal(q.body, &in) // an invalid request names no parameter
		value, ok := c.account.Parameters[in.Name]
		answerJSON(w, ok, "ParameterNotFound", map[string]any{"Parameter": map[string]string{"Name": in.Name,
			"Type": "String", "Value": value}})
	case q.service == EventBridge && q.operation == "ListRuleNamesByTarget":
		var in struct{ TargetArn string }
		_ = json.Unmarshal(q.body, &in) // an invalid request names no target
		names := c.account.Rules[strings.TrimPrefix(in.TargetArn, "arn:aws:lambda:"+Region+":"+iam.Account+":function:")]
		answerJSON(w, true, "", map[string]any{"RuleNames": slices.Concat([]string{}, names)})
	case q.service == STS:
		w.Header().Set("Content-Type", "text/xml")
		_, _ = fmt.Fprintf(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`+
			`<GetCallerIdentityResult><Arn>arn:aws:iam::%[1]s:user/%[2]s</Arn><UserId>%[2]s</UserId><Account>%[1]s</Account>`+
			`</GetCallerIdentityResult></GetCallerIdentityResponse>`, iam.Account, q.caller)
	case q.service == S3 && q.operation == getNotification:
		c.serveNotifications(w, q)
	default:
		return false
	}
	return true
}

// answerJSON writes an answer of a service that speaks JSON, or that what was asked for does
// not exist.
func answerJSON(w http.ResponseWriter, found bool, code string, answer any) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if !found {
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]string{"__type": "com.amazonaws#" + code, "message": "not found"}
	}
	_ = json.NewEncoder(w).Encode(answer) // to a client that may have gone
}

func (c *Cloud) serveQuotas(w http.ResponseWriter, q *request) {
	var in struct{ ServiceCode, QuotaCode string }
	_ = json.Unmarshal(q.body, &in) // an invalid request names no quota
	value, ok := c.account.Quotas[in.QuotaCode]
	answerJSON(w, ok && in.ServiceCode == "ec2" && q.operation == "GetServiceQuota", "NoSuchResourceException",
		map[string]any{"Quota": map[string]any{"QuotaCode": in.QuotaCode, "ServiceCode": "ec2", "Value": value}})
}

// offering is a machine type in a zone.
type offering struct {
	Type     string `xml:"instanceType"`
	Kind     string `xml:"locationType"`
	Location string `xml:"location"`
}

// offeringsAtOnce is the size of a page. EC2's have up to 1,000.
const offeringsAtOnce = 4

func (c *Cloud) serveEC2(w http.ResponseWriter, q *request) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	switch q.operation {
	case "DescribeInstanceTypeOfferings":
		var all []offering
		for _, name := range slices.Sorted(maps.Keys(c.account.Zones)) {
			for _, zone := range c.account.Zones[name] {
				if wanted(q, name) && q.form.Get("LocationType") == "availability-zone" {
					all = append(all, offering{name, "availability-zone", zone})
				}
			}
		}
		from := 0
		_, _ = fmt.Sscan(q.form.Get("NextToken"), &from) // the first page has none
		out := struct {
			XMLName xml.Name   `xml:"DescribeInstanceTypeOfferingsResponse"`
			Items   []offering `xml:"instanceTypeOfferingSet>item"`
			Next    string     `xml:"nextToken,omitempty"`
		}{Items: all[min(from, len(all)):min(from+offeringsAtOnce, len(all))]}
		if from+offeringsAtOnce < len(all) {
			out.Next = fmt.Sprint(from + offeringsAtOnce)
		}
		_ = xml.NewEncoder(w).Encode(out) // to a client that may have gone
	case "DescribeImages":
		id := q.form.Get("ImageId.1")
		if !slices.Contains(c.account.Images, id) {
			refuseEC2(w, http.StatusBadRequest, "InvalidAMIID.NotFound", "The image id '["+id+"]' does not exist")
			return
		}
		_, _ = fmt.Fprintf(w, `<DescribeImagesResponse><imagesSet><item><imageId>%s</imageId><imageState>%s`+
			`</imageState></item></imagesSet></DescribeImagesResponse>`, id, cmp.Or(c.account.ImageState, "available"))
	default:
		refuseEC2(w, http.StatusBadRequest, "InvalidAction", "The action "+q.operation+" is not valid")
	}
}

// wanted reports whether the filter of a request lets the type pass.
func wanted(q *request, name string) bool {
	for key, values := range q.form {
		if strings.HasPrefix(key, "Filter.1.Value.") && slices.Contains(values, name) {
			return true
		}
	}
	return false
}

// refuseEC2 answers with an error in EC2's format.
func refuseEC2(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Response><Errors><Error><Code>"+code+"</Code><Message>"+message+
		"</Message></Error></Errors><RequestID>1</RequestID></Response>")
}

func (c *Cloud) serveNotifications(w http.ResponseWriter, q *request) {
	w.Header().Set("Content-Type", "application/xml")
	if strings.Trim(q.http.URL.Path, "/") != c.at.S3.Bucket {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchBucket</Code><Message>It does not exist</Message></Error>")
		return
	}
	type rule struct{ Name, Value string }
	type configuration struct {
		ID       string `xml:"Id"`
		Function string `xml:"CloudFunction"`
		Event    string
		Rules    []rule `xml:"Filter>S3Key>FilterRule"`
	}
	var out struct {
		XMLName     xml.Name        `xml:"NotificationConfiguration"`
		Functions   []configuration `xml:"CloudFunctionConfiguration"`
		EventBridge *struct{}       `xml:"EventBridgeConfiguration"`
	}
	for i, n := range c.account.Notifications {
		out.Functions = append(out.Functions, configuration{fmt.Sprint(i),
			"arn:aws:lambda:" + Region + ":" + iam.Account + ":function:" + n.Function, n.Event,
			[]rule{{"Prefix", n.Prefix}, {"Suffix", n.Suffix}}})
	}
	if c.account.EventBridge {
		out.EventBridge = &struct{}{}
	}
	_ = xml.NewEncoder(w).Encode(out) // to a client that may have gone
}

// silent reports whether a service does not answer, and breaks the connection if so.
func (c *Cloud) silent(w http.ResponseWriter, q *request) bool {
	if !slices.Contains(c.account.Silent, scope(q.http)) {
		return false
	}
	if hijacker, ok := w.(http.Hijacker); ok {
		if connection, _, err := hijacker.Hijack(); err == nil {
			_ = connection.Close() // that is the point
		}
	}
	return true
}
