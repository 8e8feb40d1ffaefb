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

// DocumentOptions configure Documents. Listed, Spread and Prefix determine where
// documents are stored; they must not change during the life of the table.
type DocumentOptions struct {
	// Listed are the first parts of keys that are listed often, such as "run".
	// The documents of each share a partition, so that one query lists them.
	Listed []string
	// Spread is the number of partitions of all other documents; 0 means 64.
	Spread int
	// Prefix is prepended to every key in the table and is not part of the port's
	// keys. It must not contain a slash. Default: "".
	Prefix string
	// SDK are further options of the client, for tests.
	SDK []func(*dynamodb.Options)
}

// Documents is a DynamoDB table as a document.Store. The table has the
// partition key "p" and the sort key "k", both strings; partitions decides in
// which partition a document is.
//
// A revision is a nonce, new for every write. A repeated request that finds its
// own revision in the table therefore knows that it succeeded before.
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

// NewDocuments returns the documents of a table; it sends no request.
func NewDocuments(cfg awssdk.Config, table string, o DocumentOptions) *Documents {
	return &Documents{
		dynamo:     dynamodb.NewFromConfig(cfg, o.SDK...),
		table:      table,
		partitions: partitions{o.Prefix, o.Listed, cmp.Or(o.Spread, spread)},
	}
}

// Get reads a document; see document.Store.
func (d *Documents) Get(ctx context.Context, key string) (document.Doc, error) {
	if err := document.CheckKey(key); err != nil {
		return document.Doc{}, err
	}
	out, err := d.dynamo.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &d.table, Key: d.item(key), ConsistentRead: awssdk.Bool(true),
	})
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
	return d.put(ctx, key, value, condition{expression: "attribute_not_exists(" + keyAttribute + ")"})
}

// Replace writes a document whose revision must still be rev; see
// document.Store.
func (d *Documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error,
) {
	return d.put(ctx, key, value, revisionIs(rev))
}

// condition is what must hold for a write to take effect.
type condition struct {
	old        document.Revision // the revision to replace; "" if the document must not exist
	expression string
	values     map[string]types.AttributeValue
}

// revisionIs is the condition that a document's revision is rev.
func revisionIs(rev document.Revision) condition {
	return condition{rev, revisionAttribute + " = :old",
		map[string]types.AttributeValue{":old": stringAttribute(string(rev))}}
}

// put writes a document under a condition and returns its new revision.
func (d *Documents) put(ctx context.Context, key string, value []byte, c condition) (document.Revision, error) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	revision := document.Revision(nonce())
	item := d.item(key)
	item[valueAttribute] = &types.AttributeValueMemberB{Value: value}
	item[revisionAttribute] = stringAttribute(string(revision))
	_, err := d.dynamo.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &d.table, Item: item, ConditionExpression: &c.expression, ExpressionAttributeValues: c.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var refused *types.ConditionalCheckFailedException
	if !errors.As(err, &refused) {
		return revision, d.translate(ctx, err, "write document %s", key)
	}
	current, err := d.existingRevision(ctx, key, refused)
	switch {
	case err != nil:
		return "", err
	case current == revision: // an earlier attempt of this write succeeded
		return revision, nil
	case current == "":
		return "", fault.New(fault.Conflict, "write document %s: it was deleted", key)
	case c.old == "":
		return "", fault.New(fault.Conflict, "write document %s: it exists", key)
	}
	return "", fault.New(fault.Conflict, "write document %s: its revision is %s, not %s", key, current, c.old)
}

// existingRevision returns the revision of the document on which a condition
// failed, "" if the document does not exist. If DynamoDB's response lacks the
// revision, existingRevision reads the document.
func (d *Documents) existingRevision(
	ctx context.Context, key string, refused *types.ConditionalCheckFailedException,
) (document.Revision, error) {
	if rev, ok := refused.Item[revisionAttribute].(*types.AttributeValueMemberS); ok {
		return document.Revision(rev.Value), nil
	}
	doc, err := d.Get(ctx, key)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	return doc.Revision, fault.Wrap(err, "read the document after a conflict")
}

// Delete removes a document whose revision must still be rev; see
// document.Store. If the document is gone and the SDK retried the request after
// a lost response, Delete assumes that its own earlier attempt removed it.
func (d *Documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := document.CheckKey(key); err != nil {
		return err
	}
	c, attempts := revisionIs(rev), new(outcome)
	_, err := d.dynamo.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &d.table, Key: d.item(key), ConditionExpression: &c.expression, ExpressionAttributeValues: c.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, attempts.addMiddleware) })
	var refused *types.ConditionalCheckFailedException
	if !errors.As(err, &refused) {
		return d.translate(ctx, err, "delete document %s", key)
	}
	current, err := d.existingRevision(ctx, key, refused)
	switch {
	case err != nil:
		return err
	case current == "" && attempts.unknown.Load():
		return nil
	case current == "":
		return fault.New(fault.NotFound, "delete document %s: it does not exist", key)
	}
	return fault.New(
		fault.Conflict,
		"delete document %s: its revision is %s, not %s",
		key,
		current,
		cmp.Or(rev, `""`),
	)
}

// Ping reads a document that need not exist; see document.Store.
func (d *Documents) Ping(ctx context.Context) error {
	_, err := d.Get(ctx, "ping")
	if fault.Is(err, fault.NotFound) && codeOf(err) == "" {
		return nil
	}
	return err
}

// translate adds a remedy for a missing table to the common translation.
func (d *Documents) translate(ctx context.Context, err error, format string, args ...any) error {
	err = translate(ctx, err, format, args...)
	if own, ok := err.(*fault.Error); ok && codeOf(err) == "ResourceNotFoundException" {
		own.Remedy = "deploy the stack, or check cloud.dynamodb.table (" + d.table + ") and cloud.region"
	}
	return err
}

// item returns the primary key of a document's item.
func (d *Documents) item(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		partitionAttribute: stringAttribute(d.partitionOf(key)),
		keyAttribute:       stringAttribute(d.prefix + key),
	}
}

// doc parses an item.
func (d *Documents) doc(item map[string]types.AttributeValue) (document.Doc, error) {
	key, okKey := item[keyAttribute].(*types.AttributeValueMemberS)
	value, okValue := item[valueAttribute].(*types.AttributeValueMemberB)
	rev, okRev := item[revisionAttribute].(*types.AttributeValueMemberS)
	if !okKey || !okValue || !okRev || len(key.Value) < len(d.prefix) {
		return document.Doc{}, fault.New(fault.Corrupt, "table %s: an item lacks an attribute of a document", d.table)
	}
	if value.Value == nil {
		value.Value = []byte{}
	}
	revision := document.Revision(rev.Value)
	return document.Doc{Key: key.Value[len(d.prefix):], Value: value.Value, Revision: revision}, nil
}

func stringAttribute(s string) *types.AttributeValueMemberS {
	return &types.AttributeValueMemberS{Value: s}
}
