package aws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/retry"
)

const (
	// answerTime bounds one request, so that a service that is cut off does not take all the
	// time of a check.
	answerTime = 6 * time.Second
	// maxAnswer bounds the answer of a request.
	maxAnswer = 8 << 20
	// formType is the content type of services with AWS's older protocol.
	formType = "application/x-www-form-urlencoded; charset=utf-8"
)

// signed sends single requests to services without a client of the SDK in this program:
// EC2's alone is larger than all else. Its errors are like those of the SDK's clients, with
// code, status and operation, so that translate and Provider.IsServiceError know them. It
// is safe for concurrent use.
type signed struct {
	sdk   awssdk.Config
	clock clock.Clock
}

// remote is a service: its name in requests and addresses, and the protocol.
type remote struct {
	name    string // also the first part of the address. Example: "ec2"
	target  string // precedes the operation in services that speak JSON. Example: "AmazonSSM"
	version string // of services that take forms. Example: "2016-11-15"
	id      string // in the SDK's variables. Example: "SERVICE_QUOTAS"
}

var (
	computeService = remote{name: "ec2", version: "2016-11-15", id: "EC2"}
	quotaService   = remote{name: "servicequotas", target: "ServiceQuotasV20190624", id: "SERVICE_QUOTAS"}
	systemsManager = remote{name: "ssm", target: "AmazonSSM", id: "SSM"}
)

// json performs an operation of a service that speaks JSON.
func (s signed) json(ctx context.Context, of remote, operation string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "%s: write the request", operation)
	}
	header := http.Header{"Content-Type": {"application/x-amz-json-1.1"}, "X-Amz-Target": {of.target + "." + operation}}
	answer, err := s.send(ctx, of, operation, header, body)
	if err != nil {
		return err
	}
	return fault.WithKind(fault.Unavailable, json.Unmarshal(answer, out), "%s: read the answer", operation)
}

// form performs an operation of a service that takes forms and answers with XML.
func (s signed) form(ctx context.Context, of remote, operation string, in url.Values, out any) error {
	in.Set("Action", operation)
	in.Set("Version", of.version)
	answer, err := s.send(ctx, of, operation, http.Header{"Content-Type": {formType}}, []byte(in.Encode()))
	if err != nil {
		return err
	}
	return fault.WithKind(fault.Unavailable, xml.Unmarshal(answer, out), "%s: read the answer", operation)
}

// send sends a request, again if the service is overloaded or fails, and returns the body
// of its answer.
func (s signed) send(ctx context.Context, of remote, operation string, header http.Header, body []byte) (
	answer []byte, err error,
) {
	at, err := s.endpoint(ctx, of)
	if err != nil {
		return nil, err
	}
	err = retry.Policy{Tries: 3}.Do(ctx, func(int) error {
		answer, err = s.once(ctx, of.name, at, header, body)
		if err != nil {
			err = &smithy.OperationError{ServiceID: of.name, OperationName: operation, Err: err}
		}
		return translate(ctx, err, "%s", operation)
	})
	return answer, err
}

// once sends a request once.
func (s signed) once(ctx context.Context, service, at string, header http.Header, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "the address %s", at)
	}
	r.Header = header.Clone()
	credentials, err := s.sdk.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, r, hex.EncodeToString(digest[:]), service, s.sdk.Region,
		s.clock.Now()); err != nil {
		return nil, fault.WithKind(fault.Internal, err, "sign the request")
	}
	answer, err := s.sdk.HTTPClient.Do(r)
	if err != nil {
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	defer func() { _ = answer.Body.Close() }() // it is only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: answer}, Err: problemOf(answer, text)}
	}
	return text, nil
}

// problemOf returns the error that an answer describes, in any of the forms that services
// use: a header, JSON, or XML.
func problemOf(answer *http.Response, body []byte) error {
	var j struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
		Upper   string `json:"Message"`
	}
	var x struct {
		Error struct{ Code, Message string }
		List  struct {
			Error struct{ Code, Message string }
		} `xml:"Errors"`
	}
	code, message := answer.Header.Get("X-Amzn-ErrorType"), ""
	if json.Unmarshal(body, &j) == nil {
		code, message = cmp.Or(code, j.Type), cmp.Or(j.Message, j.Upper)
	} else if xml.Unmarshal(body, &x) == nil {
		code, message = cmp.Or(code, x.Error.Code, x.List.Error.Code), cmp.Or(x.Error.Message, x.List.Error.Message)
	}
	code, _, _ = strings.Cut(code, ":") // what follows is the address of a schema
	if code == "" {
		return errors.New(answer.Status)
	}
	return &smithy.GenericAPIError{Code: code[strings.LastIndex(code, "#")+1:], Message: message}
}

// endpoint returns the address of a service: that of the SDK's variables, or the service's
// own in the region. Partitions have domains of their own, which the SDK knows.
func (s signed) endpoint(ctx context.Context, of remote) (string, error) {
	if at := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_"+of.id), awssdk.ToString(s.sdk.BaseEndpoint)); at != "" {
		return strings.TrimSuffix(at, "/") + "/", nil
	}
	resolver := autoscaling.NewDefaultEndpointResolverV2()
	e, err := resolver.ResolveEndpoint(ctx, autoscaling.EndpointParameters{Region: &s.sdk.Region})
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "find the endpoint of %s in %s", of.name, s.sdk.Region)
	}
	_, domain, _ := strings.Cut(e.URI.Host, ".")
	return fmt.Sprintf("https://%s.%s/", of.name, domain), nil
}
