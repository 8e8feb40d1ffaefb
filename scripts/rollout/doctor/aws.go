package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"rollout/shared/aws"
	"rollout/shared/aws/stack"
	"rollout/shared/capacity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// AWS returns the checks of a stack on AWS, made on the machine.
func AWS(s *stack.Stack, machine capacity.Source) []Check {
	const network = "look at the network between here and AWS: DNS, firewall, HTTPS_PROXY, AWS_CA_BUNDLE, AWS_ENDPOINT_URL"
	cloud := s.Deployment.Cloud
	objects := fmt.Sprintf("on arn:aws:s3:::%s/%spending/*", cloud.S3.Bucket, cloud.S3.Prefix)
	instance := aws.NewInstance(s.AWS, machine, aws.InstanceOptions{})
	return []Check{
		{Name: "reachability", Limit: 10 * time.Second, Probe: reach(s.AWS), Remedy: remedies{
			fault.Unavailable: network,
		}.of},
		{Name: "auth", Limit: 15 * time.Second, Probe: auth(s.AWS, s.Ports.Docs), Remedy: remedies{
			fault.Denied:      "let this user do dynamodb:GetItem on the table " + cloud.DynamoDB.Table,
			fault.NotFound:    "deploy the stack, or look at cloud.dynamodb.table and cloud.region",
			fault.Unavailable: network,
		}.of},
		{Name: "object_store", Limit: 20 * time.Second, Probe: object(s.Ports.Blobs), Remedy: remedies{
			fault.Denied:      "let this user do s3:PutObject, s3:GetObject, s3:GetObjectVersion and s3:DeleteObject " + objects + ", and s3:GetBucketVersioning on the bucket",
			fault.NotFound:    "deploy the stack, or look at cloud.s3.bucket and cloud.region",
			fault.Unavailable: network,
		}.of},
		{Name: "queue", Limit: 20 * time.Second, Probe: message(s.Ports.Queues), Remedy: remedies{
			fault.Denied: "let this user do sqs:GetQueueUrl, sqs:SendMessage, sqs:ReceiveMessage, sqs:ChangeMessageVisibility and sqs:DeleteMessage on the queue " +
				cloud.SQS.Prefix + host.DoctorQueue,
			fault.NotFound:    "deploy the stack, or look at cloud.sqs.prefix and cloud.region",
			fault.Unavailable: network,
		}.of},
		{Name: "secret_store", Limit: 15 * time.Second, Probe: firstSecret(s.Secrets, s.Deployment.Secrets), Remedy: remedies{
			fault.Denied:      "let this user do secretsmanager:GetSecretValue on the secrets that begin with " + cloud.Secrets.Prefix,
			fault.Unavailable: network,
		}.of},
		{Name: "compute_hint", Limit: 15 * time.Second, Probe: hint(instance), Remedy: remedies{
			fault.Unavailable: "let the instance's metadata be asked: IMDSv2, with a hop limit of 2 where containers run",
		}.of},
		{Name: "content_id_roundtrip", Limit: 3 * time.Minute, Probe: contentID(s.Ports.Blobs, RoundTrip), Remedy: remedies{
			fault.Denied:      "let this user do s3:PutObject, s3:GetObject, s3:GetObjectVersion, s3:DeleteObject and s3:AbortMultipartUpload " + objects,
			fault.NotFound:    "deploy the stack, or look at cloud.s3.bucket and cloud.region",
			fault.Corrupt:     "something between here and S3 changes bytes: look at proxies, and at this machine's memory",
			fault.Unavailable: network,
		}.of},
	}
}

// remedies say what to do about kinds of failure.
type remedies map[fault.Kind]string

// of returns the remedy for a failure; "" if the credentials are what was
// refused, or there were none, which is no matter of permissions and says itself
// what to do.
func (r remedies) of(err error) string {
	var answer smithy.APIError
	if fault.Is(err, fault.Denied) && (!errors.As(err, &answer) || !strings.HasPrefix(answer.ErrorCode(), "AccessDenied") && said(err) != "") {
		return ""
	}
	return r[fault.KindOf(err)]
}

// reach asks S3's endpoint for anything: an answer, whatever it is, came over
// DNS, TCP and TLS.
func reach(cfg awssdk.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		at, err := endpoint(ctx, cfg)
		if err != nil {
			return "", err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, at, nil)
		if err != nil {
			return "", fault.WithKind(fault.Invalid, err, "the endpoint %s", at)
		}
		answer, err := cfg.HTTPClient.Do(r)
		if err != nil {
			return "", fault.WithKind(fault.Unavailable, err, "connect")
		}
		_ = answer.Body.Close() // nothing of it is wanted
		return r.URL.Redacted(), nil
	}
}

// endpoint is the address that S3 is asked at.
func endpoint(ctx context.Context, cfg awssdk.Config) (string, error) {
	o := s3.NewFromConfig(cfg).Options()
	if o.BaseEndpoint != nil {
		return *o.BaseEndpoint, nil
	}
	e, err := o.EndpointResolverV2.ResolveEndpoint(ctx, s3.EndpointParameters{Region: &cfg.Region,
		UseFIPS: awssdk.Bool(o.EndpointOptions.UseFIPSEndpoint == awssdk.FIPSEndpointStateEnabled)})
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "find the endpoint of S3 in %s", cfg.Region)
	}
	return e.URI.String(), nil
}

// auth finds credentials and asks the table with them for a document that is
// not there.
func auth(cfg awssdk.Config, docs document.Store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		who, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return "", fault.WithKind(fault.Denied, err, "find credentials")
		}
		return who.Source, fault.Wrap(docs.Ping(ctx), "read the table")
	}
}

// hint looks at the machine, and at an EC2 instance's notices.
func hint(i *aws.Instance) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		inventory, err := i.Inventory(ctx)
		if err != nil {
			return "", fault.Wrap(err, "inventory")
		}
		found := fmt.Sprintf("%d GPUs", len(inventory.GPUs))
		if inventory.Instance == "" {
			return found + ", not on an EC2 instance", nil
		}
		found += ", " + inventory.Instance
		notice, ok, err := i.Notice(ctx)
		if err != nil {
			return "", fault.Wrap(err, "ask for a notice")
		}
		if ok {
			found += ", goes away: " + notice.Reason
		}
		return found, nil
	}
}
