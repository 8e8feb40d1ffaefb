package iam

import "strings"

// keyActions are what a service asks of KMS with the caller's rights, if a key of one's own
// encrypts what the action is on. Their documentation lists them; DynamoDB's is for a table
// as a whole, and says nothing of single actions.
var keyActions = map[string][]string{
	"s3:GetObject":            {"kms:Decrypt"},
	"s3:GetObjectVersion":     {"kms:Decrypt"},
	"s3:PutObject":            {"kms:GenerateDataKey", "kms:Decrypt"}, // to complete an upload of parts reads them
	"sqs:SendMessage":         {"kms:GenerateDataKey", "kms:Decrypt"},
	"sqs:ReceiveMessage":      {"kms:Decrypt"},
	"dynamodb:GetItem":        {"kms:Decrypt", "kms:DescribeKey"},
	"dynamodb:BatchGetItem":   {"kms:Decrypt", "kms:DescribeKey"},
	"dynamodb:Query":          {"kms:Decrypt", "kms:DescribeKey"},
	"dynamodb:PutItem":        {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"},
	"dynamodb:BatchWriteItem": {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"},
	"dynamodb:DeleteItem":     {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"},
}

// KeyRequests returns what the service of a request asks of KMS with the caller's rights:
// nothing if the bucket, queue or table has no key of one's own.
func (r Roles) KeyRequests(q Request) (all []Request) {
	service, _, _ := strings.Cut(q.Action, ":")
	name := q.Resource[strings.LastIndexByte(q.Resource, ':')+1:]
	if service == "s3" {
		name, _, _ = strings.Cut(name, "/")
	}
	key, ok := r.keys[service+" "+strings.TrimPrefix(name, "table/")]
	if !ok {
		return nil
	}
	region := strings.Split(key, ":")[3]
	for _, action := range keyActions[q.Action] {
		all = append(all, Request{Action: action, Resource: key,
			Context: map[string][]string{"kms:ViaService": {service + "." + region + ".amazonaws.com"}}})
	}
	return all
}

// readKey notes the key of a bucket, a queue or a table.
func (r Roles) readKey(at resource) {
	var service, name string
	var key any
	switch at.Type {
	case "AWS::S3::Bucket":
		service, name = "s3", "BucketName"
		for _, rule := range list(dig(at.Properties, "BucketEncryption", "ServerSideEncryptionConfiguration")) {
			key = dig(rule, "ServerSideEncryptionByDefault", "KMSMasterKeyID")
		}
	case "AWS::SQS::Queue":
		service, name, key = "sqs", "QueueName", at.Properties["KmsMasterKeyId"]
	case "AWS::DynamoDB::Table":
		service, name, key = "dynamodb", "TableName", dig(at.Properties, "SSESpecification", "KMSMasterKeyId")
	}
	if arn := text(key); strings.Count(arn, ":") == 5 {
		r.keys[service+" "+text(at.Properties[name])] = arn
	}
}
