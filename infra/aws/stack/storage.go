package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/record"
)

// Days after which S3's lifecycle rules delete objects.
const (
	workDays    = 90 // checkpoints and shard results; a longer run loses them
	pendingDays = 7
	uploadDays  = 7  // parts of incomplete multipart uploads
	oldDays     = 30 // replaced versions; a run reads the version it began with
)

// bucket adds the bucket, which invokes the function for each new prompts file.
// The bucket remains when the stack is deleted, but not if its first deployment fails: it
// is empty then, and its name would block the next one.
func (b *builder) bucket(permission awslambda.CfnPermission, function *string) {
	rule := func(id, prefix string, r awss3.LifecycleRule) *awss3.LifecycleRule {
		r.Id, r.Prefix = &id, jsii.String(b.cloud.S3.Prefix+prefix)
		return &r
	}
	days := func(n float64) awscdk.Duration { return awscdk.Duration_Days(&n) }
	props := awss3.BucketProps{
		BucketName:        &b.cloud.S3.Bucket,
		Versioned:         jsii.Bool(true), // a run reads the version of its input that it began with
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		MinimumTLSVersion: jsii.Number(1.2),
		RemovalPolicy:     awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,
		LifecycleRules: &[]*awss3.LifecycleRule{
			rule("work", record.WorkPrefix, awss3.LifecycleRule{
				Expiration:                  days(workDays),
				NoncurrentVersionExpiration: days(1),
			}),
			rule("pending", record.PendingPrefix, awss3.LifecycleRule{
				Expiration:                  days(pendingDays),
				NoncurrentVersionExpiration: days(1),
			}),
			rule("old-versions", "", awss3.LifecycleRule{
				NoncurrentVersionExpiration: days(oldDays),
				ExpiredObjectDeleteMarker:   jsii.Bool(true),
			}),
			rule("uploads", "", awss3.LifecycleRule{AbortIncompleteMultipartUploadAfter: days(uploadDays)}),
		},
	}
	if b.Keys.Bucket != "" {
		props.Encryption, props.EncryptionKey = awss3.BucketEncryption_KMS, b.key("Bucket", b.Keys.Bucket)
		props.BucketKeyEnabled = jsii.Bool(true) // far fewer calls of KMS, which cost money
	}
	bucket := awss3.NewBucket(b.stack, jsii.String("Bucket"), &props)
	resource := child(bucket).(awss3.CfnBucket)
	// S3 sends a test event when the notification is set up: the permission must
	// exist before.
	resource.AddResourceDependency(permission, nil)
	resource.SetNotificationConfiguration(&awss3.CfnBucket_NotificationConfigurationProperty{
		LambdaConfigurations: []any{&awss3.CfnBucket_LambdaConfigurationProperty{
			Event: jsii.String("s3:ObjectCreated:*"), Function: function,
			Filter: &awss3.CfnBucket_NotificationFilterProperty{S3Key: &awss3.CfnBucket_S3KeyFilterProperty{
				Rules: []any{
					&awss3.CfnBucket_FilterRuleProperty{
						Name:  jsii.String("prefix"),
						Value: jsii.String(promptsOf(b.cloud)),
					},
				},
			}},
		}},
	})
	suppress(resource, suppression{
		"AwsSolutions-S1",
		"A log of every access would be larger than what is accessed; " +
			"CloudTrail's data events can be switched on by who needs them.",
	})
}

// objectArns returns ARN patterns for the objects below the prefixes of the
// bucket.
func (b *builder) objectArns(prefixes ...string) (arns []string) {
	for _, p := range prefixes {
		arns = append(arns, b.bucketArn()+"/"+b.cloud.S3.Prefix+p+"*")
	}
	return arns
}

func (b *builder) bucketArn() string {
	return "arn:" + b.partition + ":s3:::" + b.cloud.S3.Bucket
}

// table adds the table of the documents. It remains when the stack is deleted, as the
// bucket does.
func (b *builder) table() {
	attribute := func(name string) *awsdynamodb.Attribute {
		return &awsdynamodb.Attribute{Name: &name, Type: awsdynamodb.AttributeType_STRING}
	}
	props := awsdynamodb.TableProps{
		TableName:    &b.cloud.DynamoDB.Table,
		PartitionKey: attribute("p"),
		SortKey:      attribute("k"),
		BillingMode:  awsdynamodb.BillingMode_PAY_PER_REQUEST,
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,
	}
	if b.Keys.Table != "" {
		props.Encryption, props.EncryptionKey = awsdynamodb.TableEncryption_CUSTOMER_MANAGED, b.key("Table", b.Keys.Table)
	}
	awsdynamodb.NewTable(b.stack, jsii.String("Table"), &props)
}

func (b *builder) tableArn() string { return b.arn("dynamodb", "table/"+b.cloud.DynamoDB.Table) }

// seconds returns n seconds as a CDK duration.
func seconds(n int) awscdk.Duration { return awscdk.Duration_Seconds(jsii.Number(n)) }
