package stack

import (
	"encoding/json"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"

	"rollout/events"
)

// eventBus adds the bus of the events that people are told, which reclaim puts there, and
// sends them to the email address if there is one. A bus, its rules and its topic cost
// nothing while there are no events.
//
//	reclaim ──PutEvents──▶ bus ──rule, input transformer──▶ topic ──▶ email
//	                        └────▶ rules of the account's owner
func (b *builder) eventBus() {
	bus := awsevents.NewCfnEventBus(b.stack, jsii.String("Events"), &awsevents.CfnEventBusProps{
		Name:        jsii.String(b.cloud.EventBusName()),
		Description: jsii.String("rollout: what happens to runs and to pools of machines"),
	})
	if b.Email == "" {
		return
	}
	topic := b.eventsTopic()
	for _, m := range b.mails() {
		awsevents.NewCfnRule(b.stack, jsii.String("Mail-"+m.id), &awsevents.CfnRuleProps{
			EventBusName: bus.Ref(),
			Description:  jsii.String("rollout: " + m.about),
			EventPattern: map[string]any{"detail-type": m.types},
			Targets: []any{&awsevents.CfnRule_TargetProperty{
				Id: jsii.String("topic"), Arn: topic.TopicArn(),
				InputTransformer: &awsevents.CfnRule_InputTransformerProperty{
					InputPathsMap: m.paths(), InputTemplate: jsii.String(m.template()),
				},
			}},
		})
	}
}

// putEvents allows putting events on the stack's bus, and on no other.
func (b *builder) putEvents() []grant {
	return []grant{{
		id:        "PutEvents",
		actions:   []string{"events:PutEvents"},
		resources: []string{b.arn("events", "event-bus/"+b.cloud.EventBusName())},
	}}
}

// eventsTopic adds the topic that sends events to the email address. It is not that of the
// alarms, so that people can leave one and keep the other.
//
// The statement for EventBridge has no condition on its source: AWS documents none for
// rules with topics as targets.
func (b *builder) eventsTopic() awssns.Topic {
	topic := awssns.NewTopic(b.stack, jsii.String("EventsTopic"), &awssns.TopicProps{
		TopicName: jsii.String(b.cloud.EventBusName()), EnforceSSL: jsii.Bool(true),
	})
	topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("events"),
		Actions:    jsii.Strings("sns:Publish"),
		Resources:  jsii.Strings(*topic.TopicArn()),
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil)},
	}))
	awssns.NewCfnSubscription(b.stack, jsii.String("EventsByEmail"), &awssns.CfnSubscriptionProps{
		TopicArn: topic.TopicArn(), Protocol: jsii.String("email"), Endpoint: &b.Email,
	})
	return topic
}

// mail is the text of an email about events of some types. In its lines, <name> stands for
// a field of the event's data, and is empty if the event lacks it.
type mail struct {
	id, about string
	types     []events.Type
	fields    []string
	lines     []string
}

// mails returns the emails about all events that people are told. Each type is in one.
func (b *builder) mails() []mail {
	more := "More: rollout status <run> --cloud aws"
	outcome := []string{"name", "run", "phase", "items", "completed", "failed", "seconds", "cost_usd", "summary"}
	counts := []string{
		"Items with an answer: <completed> of <items>. Failed: <failed>.",
		"Seconds: <seconds>. Dollars, as far as they are known: <cost_usd>",
		// A run that was refused has no files: then it is the bucket and what keys begin with.
		"Files, if it has any: s3://" + b.cloud.S3.Bucket + "/" + b.cloud.S3.Prefix + "<summary>",
		more,
	}
	pool := func(id, about string, t events.Type, line string) mail {
		return mail{id, about, []events.Type{t}, []string{"pool", "reason"}, []string{
			line,
			"<reason>",
			"This is told when it begins, and daily while it lasts.",
			"More: rollout cloud doctor --provider aws",
		}}
	}
	return []mail{
		{"completed", "a run has completed", []events.Type{events.TypeRunCompleted}, outcome, append([]string{
			"The run <name> (<run>) has ended: <phase>",
		}, counts...)},
		{"early", "a run has ended early", []events.Type{events.TypeRunFailed, events.TypeRunStopped},
			append([]string{"message"}, outcome...), append([]string{
				"The run <name> (<run>) has ended early: <phase>",
				"Why: <message>",
			}, counts...)},
		{"paused", "a run has paused", []events.Type{events.TypeRunPaused}, []string{"name", "run", "reason"}, []string{
			"The run <name> (<run>) is paused: <reason>",
			"It waits until you resume it: rollout resume <run> --cloud aws",
			more,
		}},
		{"budget", "a budget is nearly spent", []events.Type{events.TypeBudgetLow},
			[]string{"name", "run", "budget", "used", "limit"}, []string{
				"The run <name> (<run>) has used <used> of the <limit> of its budget of <budget>, and goes on.",
				"It ends when the budget is spent.",
				more,
			}},
		pool("capacity", "there is no capacity", events.TypeCapacityMissing,
			"AWS has no machine free for the pool <pool>, whose work waits."),
		pool("quota", "a quota is reached", events.TypeQuotaReached,
			"The account may have no further machine for the pool <pool>, whose work waits."),
		pool("launch", "machines can't be started", events.TypeLaunchFailed,
			"No machine of the pool <pool> can be started, and its work waits."),
		pool("boot", "machines fail to start a worker", events.TypeBootFailed,
			"A machine of the pool <pool> has started, and no worker on it."),
	}
}

// paths returns where in an event the fields are.
func (m mail) paths() map[string]*string {
	paths := map[string]*string{}
	for _, field := range m.fields {
		paths[field] = jsii.String("$.detail.data." + field)
	}
	return paths
}

// template returns the lines as EventBridge wants text of several lines: each line is a JSON
// string.
func (m mail) template() string {
	var quoted []string
	for _, line := range m.lines {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // < and > stay, which enclose names
		if err := e.Encode(line); err != nil {
			panic(err) // can't happen: a string always marshals
		}
		quoted = append(quoted, strings.TrimSpace(text.String()))
	}
	return strings.Join(quoted, "\n")
}
