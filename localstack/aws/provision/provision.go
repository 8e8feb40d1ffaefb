package provision

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"rollout/shared/aws"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

const patience = 4 * time.Minute // for a table to become active

// Create creates the missing resources of a deployment's stack. It fails unless
// the endpoint of cfg is an emulator.
func Create(ctx context.Context, cfg awssdk.Config, d config.Deployment) error {
	if err := requireEmulator(cfg); err != nil {
		return err
	}
	if err := bucket(ctx, cfg, d.Cloud.S3.Bucket); err != nil {
		return fault.WithKind(fault.Unavailable, err, "create the bucket %s", d.Cloud.S3.Bucket)
	}
	if err := table(ctx, cfg, d.Cloud.DynamoDB.Table); err != nil {
		return fault.WithKind(fault.Unavailable, err, "create the table %s", d.Cloud.DynamoDB.Table)
	}
	queues := aws.NewQueues(cfg, aws.QueueOptions{Prefix: d.Cloud.SQS.Prefix, CreateMissing: true})
	for _, name := range QueueNames(d) {
		if _, _, err := queues.Depth(ctx, name); err != nil { // Depth creates the queue
			return err
		}
	}
	return nil
}

// ReadConfig parses the config of a deployment on AWS.
func ReadConfig(name string, text []byte) (config.Deployment, error) {
	d, err := config.ParseDeployment(name, text)
	if err == nil && d.Cloud.Provider != config.ProviderAWS {
		err = &fault.Error{Kind: fault.Invalid, Op: name, Err: errors.New("the config has no table [cloud]"),
			Remedy: "add [cloud] with provider = \"aws\", as in examples/aws.toml"}
	}
	return d, err
}

// requireEmulator fails if the endpoint may be a real account.
func requireEmulator(cfg awssdk.Config) error {
	at, err := url.Parse(awssdk.ToString(cfg.BaseEndpoint))
	if err != nil || !isLocal(at.Hostname()) {
		return &fault.Error{Kind: fault.Invalid,
			Err: errors.New("AWS_ENDPOINT_URL is not the address of an emulator on this machine"),
			Remedy: "set it to the emulator's address, such as http://127.0.0.1:4566; " +
				"create the stack of an account with cdk deploy"}
	}
	return nil
}

// isLocal reports whether a host is this machine or a container on it.
func isLocal(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate()
	}
	return host != "" && !strings.Contains(strings.TrimSuffix(host, ".localhost"), ".")
}

// bucket creates the bucket with versioning if it does not exist.
func bucket(ctx context.Context, cfg awssdk.Config, name string) error {
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	in := &s3.CreateBucketInput{Bucket: &name}
	if cfg.Region != "us-east-1" {
		region := s3types.BucketLocationConstraint(cfg.Region)
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{LocationConstraint: region}
	}
	var exists *s3types.BucketAlreadyOwnedByYou
	if _, err := client.CreateBucket(ctx, in); err != nil && !errors.As(err, &exists) {
		return err
	}
	_, err := client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &name,
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	return err
}

// table creates the table if it does not exist, and waits until it is active.
func table(ctx context.Context, cfg awssdk.Config, name string) error {
	client := dynamodb.NewFromConfig(cfg)
	var exists *ddbtypes.ResourceInUseException
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: ddbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []ddbtypes.AttributeDefinition{
			{AttributeName: new("p"), AttributeType: ddbtypes.ScalarAttributeTypeS},
			{AttributeName: new("k"), AttributeType: ddbtypes.ScalarAttributeTypeS},
		},
		KeySchema: []ddbtypes.KeySchemaElement{
			{AttributeName: new("p"), KeyType: ddbtypes.KeyTypeHash},
			{AttributeName: new("k"), KeyType: ddbtypes.KeyTypeRange},
		},
	})
	if err != nil && !errors.As(err, &exists) {
		return err
	}
	wait := dynamodb.NewTableExistsWaiter(client,
		func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 100 * time.Millisecond })
	return wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, patience)
}

// QueueNames lists the queues of the deployment's stack, except the dead letter
// queues that are created with them.
func QueueNames(d config.Deployment) []string {
	names := []string{host.CoordinateQueue, host.DoctorQueue, queue.DeadLetterQueue(host.TaskQueue)}
	for _, p := range d.Pools {
		names = append(names, host.WorkQueue(p.Name), host.UrgentQueue(p.Name))
	}
	return names
}
