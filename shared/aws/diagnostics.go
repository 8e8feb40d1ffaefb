package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Diagnostics returns the probes and remedies of a stack; see
// cloud.Installation.
func (s *Stack) Diagnostics(machine capacity.Source) cloud.Diagnostics {
	remedies := s.remedies()
	return cloud.Diagnostics{
		Before:         newAccount(s).probes(),
		Reach:          reach(s.AWS),
		Authenticate:   authenticate(s.AWS, s.Ports.Docs),
		InspectMachine: inspect(NewInstance(s.AWS, machine, InstanceOptions{})),
		Remedy: func(check string, err error) string {
			if explainsItself(err) {
				return ""
			}
			return remedies[check][fault.KindOf(err)]
		},
	}
}

// remedies say what to do about kinds of failure, by check.
func (s *Stack) remedies() map[string]map[fault.Kind]string {
	const network = "look at the network between here and AWS: DNS, firewall, HTTPS_PROXY, AWS_CA_BUNDLE, AWS_ENDPOINT_URL"
	at := s.Deployment.Cloud
	objects := fmt.Sprintf("on arn:aws:s3:::%s/%spending/*", at.S3.Bucket, at.S3.Prefix)
	return map[string]map[fault.Kind]string{
		cloud.CheckReachability: {fault.Unavailable: network},
		cloud.CheckAuth: {
			fault.Denied:      "let this user do dynamodb:GetItem on the table " + at.DynamoDB.Table,
			fault.NotFound:    "deploy the stack, or look at cloud.dynamodb.table and cloud.region",
			fault.Unavailable: network,
		},
		cloud.CheckObjectStore: {
			fault.Denied: "let this user do s3:PutObject, s3:GetObject, s3:GetObjectVersion and s3:DeleteObject " + objects +
				", s3:GetObject on " + at.S3.Prefix + record.OwnerKey + ", and s3:GetBucketVersioning on the bucket",
			fault.NotFound:    "deploy the stack, or look at cloud.s3.bucket and cloud.region",
			fault.Unavailable: network,
		},
		cloud.CheckQueue: {
			fault.Denied: "let this user do sqs:GetQueueUrl, sqs:SendMessage, sqs:ReceiveMessage, " +
				"sqs:ChangeMessageVisibility and sqs:DeleteMessage on the queue " + at.SQS.Prefix + host.DoctorQueue,
			fault.NotFound:    "deploy the stack, or look at cloud.sqs.prefix and cloud.region",
			fault.Unavailable: network,
		},
		cloud.CheckSecretStore: {
			fault.Denied: "let this user do secretsmanager:GetSecretValue on the secrets that begin with " +
				at.Secrets.Prefix,
			fault.Unavailable: network,
		},
		cloud.CheckComputeHint: {
			fault.Unavailable: "let the instance's metadata be asked: IMDSv2, with a hop limit of 2 where containers run",
		},
		cloud.CheckContentID: {
			fault.Denied: "let this user do s3:PutObject, s3:GetObject, s3:GetObjectVersion, s3:DeleteObject and " +
				"s3:AbortMultipartUpload " + objects,
			fault.NotFound:    "deploy the stack, or look at cloud.s3.bucket and cloud.region",
			fault.Corrupt:     "something between here and S3 changes bytes: look at proxies, and at this machine's memory",
			fault.Unavailable: network,
		},
	}
}

// explainsItself reports whether the credentials were refused or missing. The error
// then has its own remedy, and one about permissions would mislead.
func explainsItself(err error) bool {
	if !fault.Is(err, fault.Denied) {
		return false
	}
	var answer smithy.APIError
	return !errors.As(err, &answer) ||
		!strings.HasPrefix(answer.ErrorCode(), "AccessDenied") && fault.RemedyOf(err) != ""
}

// reach sends a request to S3's endpoint. Any answer proves DNS, TCP and TLS.
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
		_ = answer.Body.Close() // the body is not used
		return r.URL.Redacted(), nil
	}
}

// endpoint returns the URL of S3's endpoint.
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

// authenticate finds credentials and asks the table with them for a document
// that does not exist.
func authenticate(cfg awssdk.Config, docs document.Store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		who, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return "", fault.WithKind(fault.Denied, err, "find credentials")
		}
		return who.Source, fault.Wrap(docs.Ping(ctx), "read the table")
	}
}

// inspect describes the machine and, on an EC2 instance, its notices.
func inspect(i *Instance) func(context.Context) (string, error) {
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
