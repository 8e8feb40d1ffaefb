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

// patience is how long a table may take to be there.
const patience = time.Minute

// Create makes what is not there yet of the stack of a deployment on AWS.
func Create(ctx context.Context, cfg awssdk.Config, d config.Deployment) error {
	if err := requireEmulator(cfg); err != nil {
		return err
	}
	if err := bucket(ctx, cfg, d.Cloud.S3.Bucket); err != nil {
		return fault.WithKind(fault.Unavailable, err, "make the bucket %s", d.Cloud.S3.Bucket)
	}
	if err := table(ctx, cfg, d.Cloud.DynamoDB.Table); err != nil {
		return fault.WithKind(fault.Unavailable, err, "make the table %s", d.Cloud.DynamoDB.Table)
	}
	queues := aws.NewQueues(cfg, aws.QueueOptions{Prefix: d.Cloud.SQS.Prefix, CreateMissing: true})
	for _, name := range QueueNames(d) {
		if _, _, err := queues.Depth(ctx, name); err != nil { // a look at a queue makes it
			return err
		}
	}
	return nil
}

// ReadConfig reads the config of a deployment on AWS.
func ReadConfig(name string, text []byte) (config.Deployment, error) {
	d, err := config.ParseDeployment(name, text)
	if err == nil && d.Cloud.Provider != config.ProviderAWS {
		err = &fault.Error{Kind: fault.Invalid, Op: name, Err: errors.New("it has no table [cloud]"), Remedy: "say provider = \"aws\" there, as examples/aws.toml does"}
	}
	return d, err
}

// requireEmulator refuses what may be an account.
func requireEmulator(cfg awssdk.Config) error {
	at, err := url.Parse(awssdk.ToString(cfg.BaseEndpoint))
	if err != nil || !isLocal(at.Hostname()) {
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("AWS_ENDPOINT_URL names no emulator near this machine"),
			Remedy: "set it to the emulator's address, such as http://127.0.0.1:4566; an account gets its stack by cdk deploy"}
	}
	return nil
}

// isLocal reports whether a host is this machine or a container beside it.
func isLocal(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate()
	}
	return host != "" && !strings.Contains(strings.TrimSuffix(host, ".localhost"), ".")
}

func bucket(ctx context.Context, cfg awssdk.Config, name string) error {
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	in := &s3.CreateBucketInput{Bucket: &name}
	if cfg.Region != "us-east-1" {
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraint(cfg.Region)}
	}
	var there *s3types.BucketAlreadyOwnedByYou
	if _, err := client.CreateBucket(ctx, in); err != nil && !errors.As(err, &there) {
		return err
	}
	_, err := client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &name,
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	return err
}

func table(ctx context.Context, cfg awssdk.Config, name string) error {
	client := dynamodb.NewFromConfig(cfg)
	var there *ddbtypes.ResourceInUseException
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
	if err != nil && !errors.As(err, &there) {
		return err
	}
	wait := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 100 * time.Millisecond })
	return wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, patience)
}

// QueueNames are the queues of the deployment's stack, without those of dead
// letters that come with them.
func QueueNames(d config.Deployment) []string {
	names := []string{host.CoordinateQueue, host.DoctorQueue, queue.DeadLetterQueue(host.TaskQueue)}
	for _, p := range d.Pools {
		names = append(names, host.WorkQueue(p.Name), host.UrgentQueue(p.Name))
	}
	return names
}
