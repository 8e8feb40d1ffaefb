package aws

import (
	"cmp"
	"context"
	"errors"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// DocumentOptions are what Documents are not told by their port.
type DocumentOptions struct {
	// Listed are the first parts of keys that are listed often, such as "run":
	// the documents of each stand together, so that listing them is one query.
	Listed []string
	// Spread is the number of partitions of all other documents; 0 is 64. It is
	// for the life of the table.
	Spread int
	// Prefix stands before every key in the table, and is not part of the
	// port's keys. It has no slash. "" is none.
	Prefix string
	// SDK are further options of the client, for tests.
	SDK []func(*dynamodb.Options)
}

// Documents is a DynamoDB table as a document.Store. The table has the
// partition key "p" and the sort key "k", both strings; see partitions for
// which document is where.
//
// A revision is a nonce, new for every write: what stands in the way of a
// repeated request can be told from what is the request's own.
type Documents struct {
	dynamo *dynamodb.Client
	table  string
	partitions
}

var _ document.Store = (*Documents)(nil)

// Attributes of a document.
const (
	partitionAttribute = "p"
	keyAttribute       = "k"
	valueAttribute     = "v"
	revisionAttribute  = "r"
)

// NewDocuments returns the table's documents; it asks for nothing yet.
func NewDocuments(cfg awssdk.Config, table string, o DocumentOptions) *Documents {
	return &Documents{dynamo: dynamodb.NewFromConfig(cfg, o.SDK...), table: table, partitions: partitions{o.Prefix, o.Listed, cmp.Or(o.Spread, spread)}}
}

// Get reads a document; see document.Store.
func (d *Documents) Get(ctx context.Context, key string) (document.Doc, error) {
	if err := document.CheckKey(key); err != nil {
		return document.Doc{}, err
	}
	out, err := d.dynamo.GetItem(ctx, &dynamodb.GetItemInput{TableName: &d.table, Key: d.item(key), ConsistentRead: awssdk.Bool(true)})
	if err != nil {
		return document.Doc{}, d.translate(ctx, err, "get document %s", key)
	}
	if len(out.Item) == 0 {
		return document.Doc{}, fault.New(fault.NotFound, "no document %s", key)
	}
	return d.doc(out.Item)
}

// Create writes a document that must not exist; see document.Store.
func (d *Documents) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	return d.put(ctx, key, value, "", "attribute_not_exists("+keyAttribute+")", nil)
}

// Replace writes a document whose revision must still be rev; see
// document.Store.
func (d *Documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (document.Revision, error) {
	condition, values := holds(rev)
	return d.put(ctx, key, value, rev, condition, values)
}

// holds is the condition that a document's revision is rev.
func holds(rev document.Revision) (string, map[string]types.AttributeValue) {
	return revisionAttribute + " = :old", map[string]types.AttributeValue{":old": stringAttribute(string(rev))}
}

// put writes a document under a condition.
func (d *Documents) put(ctx context.Context, key string, value []byte, old document.Revision, condition string, values map[string]types.AttributeValue) (document.Revision, error) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	revision := document.Revision(nonce())
	item := d.item(key)
	item[valueAttribute] = &types.AttributeValueMemberB{Value: value}
	item[revisionAttribute] = stringAttribute(string(revision))
	_, err := d.dynamo.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &d.table, Item: item, ConditionExpression: &condition, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var refused *types.ConditionalCheckFailedException
	if !errors.As(err, &refused) {
		return revision, d.translate(ctx, err, "write document %s", key)
	}
	there, err := d.existingRevision(ctx, key, refused)
	switch {
	case err != nil:
		return "", err
	case there == revision: // a repetition of this very write
		return revision, nil
	case there == "":
		return "", fault.New(fault.Conflict, "write document %s: it is gone", key)
	case old == "":
		return "", fault.New(fault.Conflict, "write document %s: it exists", key)
	}
	return "", fault.New(fault.Conflict, "write document %s: its revision is %s, not %s", key, there, old)
}

// existingRevision returns the revision of the document that a condition failed on, "" if
// there is none. The answer has it; where it has not, the document is read.
func (d *Documents) existingRevision(ctx context.Context, key string, refused *types.ConditionalCheckFailedException) (document.Revision, error) {
	if rev, ok := refused.Item[revisionAttribute].(*types.AttributeValueMemberS); ok {
		return document.Revision(rev.Value), nil
	}
	doc, err := d.Get(ctx, key)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	return doc.Revision, fault.Wrap(err, "look at the document that is in the way")
}

// Delete removes a document whose revision must still be rev; see
// document.Store. If the document is gone and the SDK had to repeat the
// request after a try whose reply was lost, that try is taken to have removed
// it.
func (d *Documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := document.CheckKey(key); err != nil {
		return err
	}
	condition, values := holds(rev)
	tries := new(outcome)
	_, err := d.dynamo.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &d.table, Key: d.item(key), ConditionExpression: &condition, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, tries.watch) })
	var refused *types.ConditionalCheckFailedException
	if !errors.As(err, &refused) {
		return d.translate(ctx, err, "delete document %s", key)
	}
	there, err := d.existingRevision(ctx, key, refused)
	switch {
	case err != nil:
		return err
	case there == "" && tries.open.Load():
		return nil
	case there == "":
		return fault.New(fault.NotFound, "delete document %s: there is none", key)
	}
	return fault.New(fault.Conflict, "delete document %s: its revision is %s, not %s", key, there, cmp.Or(rev, "(none)"))
}

// Ping asks for a document; see document.Store.
func (d *Documents) Ping(ctx context.Context) error {
	_, err := d.Get(ctx, "ping")
	if fault.Is(err, fault.NotFound) && codeOf(err) == "" {
		return nil
	}
	return err
}

// translate also says what to do about a table that is not there.
func (d *Documents) translate(ctx context.Context, err error, format string, args ...any) error {
	err = translate(ctx, err, format, args...)
	if own, ok := err.(*fault.Error); ok && codeOf(err) == "ResourceNotFoundException" {
		own.Remedy = "deploy the stack, or look at cloud.dynamodb.table (" + d.table + ") and cloud.region"
	}
	return err
}

// item is the key of a document's item.
func (d *Documents) item(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{partitionAttribute: stringAttribute(d.of(key)), keyAttribute: stringAttribute(d.prefix + key)}
}

// doc reads an item.
func (d *Documents) doc(item map[string]types.AttributeValue) (document.Doc, error) {
	key, okKey := item[keyAttribute].(*types.AttributeValueMemberS)
	value, okValue := item[valueAttribute].(*types.AttributeValueMemberB)
	rev, okRev := item[revisionAttribute].(*types.AttributeValueMemberS)
	if !okKey || !okValue || !okRev || len(key.Value) < len(d.prefix) {
		return document.Doc{}, fault.New(fault.Corrupt, "table %s: an item is no document", d.table)
	}
	if value.Value == nil {
		value.Value = []byte{}
	}
	return document.Doc{Key: key.Value[len(d.prefix):], Value: value.Value, Revision: document.Revision(rev.Value)}, nil
}

func stringAttribute(s string) *types.AttributeValueMemberS {
	return &types.AttributeValueMemberS{Value: s}
}
