package stack

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsbudgets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/host"
	"rollout/shared/queue"
)

// monitoring makes what tells a person: alarms, a dashboard and a budget.
func (b *builder) monitoring(queues map[string]awssqs.Queue) {
	topic := b.topic()
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if queue.IsDeadLetterQueue(name) {
			b.alarm("Alarm-"+name, "There are messages that nothing can be done with: see what they say, and send them again or delete them.",
				topic, metric{"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", b.cloud.SQS.Prefix + name, "Maximum"}, 1, 1)
		}
	}
	b.alarm("Alarm-late", "Nobody has decided on what happened for 10 minutes: see the log of coordinate.",
		topic, metric{"AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", b.cloud.SQS.Prefix + host.CoordinateQueue, "Maximum"}, 600, 1)
	b.alarm("Alarm-reclaim", "What is lost is not looked for: see the log of reclaim.",
		topic, metric{"AWS/Lambda", "Errors", "FunctionName", b.cloud.FunctionName(reclaim), "Sum"}, 3, 3)
	b.dashboard()
	if b.Budget > 0 {
		b.budget(topic)
	}
}

// topic is where alarms go, and on to the email address if there is one.
func (b *builder) topic() awssns.Topic {
	topic := awssns.NewTopic(b.stack, jsii.String("Alarms"), &awssns.TopicProps{TopicName: jsii.String(b.cloud.Name + "-alarms"), EnforceSSL: jsii.Bool(true)})
	for _, service := range []string{"cloudwatch", "budgets"} {
		topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Sid: jsii.String(service), Actions: jsii.Strings("sns:Publish"), Resources: jsii.Strings(*topic.TopicArn()),
			Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String(service+".amazonaws.com"), nil)},
			Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Aws_ACCOUNT_ID()}},
		}))
	}
	if b.Email != "" {
		awssns.NewCfnSubscription(b.stack, jsii.String("AlarmsByEmail"), &awssns.CfnSubscriptionProps{
			TopicArn: topic.TopicArn(), Protocol: jsii.String("email"), Endpoint: &b.Email,
		})
	}
	return topic
}

// metric is one of CloudWatch's.
type metric struct{ namespace, name, dimension, value, statistic string }

// alarm is raised when the metric is at least so much for some of its 5
// minutes.
func (b *builder) alarm(id, what string, topic awssns.Topic, m metric, atLeast, periods float64) {
	awscloudwatch.NewCfnAlarm(b.stack, &id, &awscloudwatch.CfnAlarmProps{
		AlarmDescription: &what, AlarmActions: &[]any{topic.TopicArn()},
		Namespace: &m.namespace, MetricName: &m.name, Statistic: &m.statistic,
		Dimensions: []any{&awscloudwatch.CfnAlarm_DimensionProperty{Name: &m.dimension, Value: &m.value}},
		Period:     jsii.Number(300), EvaluationPeriods: &periods, Threshold: &atLeast,
		ComparisonOperator: jsii.String("GreaterThanOrEqualToThreshold"), TreatMissingData: jsii.String("notBreaching"),
	})
}

// dashboard shows how the installation does. The first three of an account, of
// up to 50 metrics each, are free of charge.
func (b *builder) dashboard() {
	type widget struct {
		Type       string         `json:"type"`
		X          int            `json:"x"`
		Y          int            `json:"y"`
		Width      int            `json:"width"`
		Height     int            `json:"height"`
		Properties map[string]any `json:"properties"`
	}
	var widgets []widget
	add := func(title, statistic string, metrics ...[]any) {
		n := len(widgets)
		widgets = append(widgets, widget{"metric", n % 2 * 12, n / 2 * 6, 12, 6, map[string]any{
			"title": title, "stat": statistic, "period": 60, "region": b.cloud.Region, "metrics": metrics, "view": "timeSeries",
		}})
	}
	of := func(namespace, name, dimension string, values ...string) (out [][]any) {
		for _, v := range values {
			out = append(out, []any{namespace, name, dimension, v, map[string]any{"label": v}})
		}
		return out
	}
	prefixed := func(names []string) (out []string) {
		for _, n := range names {
			out = append(out, b.cloud.SQS.Prefix+n)
		}
		return out
	}
	var functions []string
	for _, name := range order {
		functions = append(functions, b.cloud.FunctionName(name))
	}
	waiting := queueNames(b.Deployment)
	add("Messages that wait", "Maximum", of("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", prefixed(waiting)...)...)
	add("Dead letters", "Maximum", of("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", prefixed(append(deadOf(waiting), deadTasks()))...)...)
	add("Functions that failed", "Sum", of("AWS/Lambda", "Errors", "FunctionName", functions...)...)
	add("Calls of functions", "Sum", of("AWS/Lambda", "Invocations", "FunctionName", functions...)...)
	add("How long functions take (ms)", "Maximum", of("AWS/Lambda", "Duration", "FunctionName", functions...)...)
	add("Documents written and read", "Sum",
		[]any{"AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", b.cloud.DynamoDB.Table, map[string]any{"label": "written"}},
		[]any{"AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName", b.cloud.DynamoDB.Table, map[string]any{"label": "read"}})
	if b.Machines {
		var groups []string
		for _, p := range b.Deployment.InferPools() {
			groups = append(groups, b.cloud.FleetName(p.Name))
		}
		add("Machines wanted", "Maximum", of("AWS/AutoScaling", "GroupDesiredCapacity", "AutoScalingGroupName", groups...)...)
		add("Machines at work", "Maximum", of("AWS/AutoScaling", "GroupInServiceInstances", "AutoScalingGroupName", groups...)...)
	}
	body, err := json.Marshal(map[string]any{"widgets": widgets})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	awscloudwatch.NewCfnDashboard(b.stack, jsii.String("Dashboard"), &awscloudwatch.CfnDashboardProps{
		DashboardName: &b.cloud.Name, DashboardBody: jsii.String(string(body)),
	})
}

// deadOf are the queues of the dead letters of others.
func deadOf(names []string) (dead []string) {
	for _, name := range names {
		dead = append(dead, queue.DeadLetterQueue(name))
	}
	return dead
}

// budget tells when the account has cost four fifths of what it should in a
// month, and when it will cost more. It counts the whole account: to count by
// tag, an account must have activated that tag.
func (b *builder) budget(topic awssns.Topic) {
	var tell []any
	for _, n := range []struct {
		kind    string
		percent float64
	}{{"ACTUAL", 80}, {"FORECASTED", 100}} {
		tell = append(tell, &awsbudgets.CfnBudget_NotificationWithSubscribersProperty{
			Notification: &awsbudgets.CfnBudget_NotificationProperty{
				NotificationType: &n.kind, ComparisonOperator: jsii.String("GREATER_THAN"), Threshold: &n.percent, ThresholdType: jsii.String("PERCENTAGE"),
			},
			Subscribers: []any{&awsbudgets.CfnBudget_SubscriberProperty{SubscriptionType: jsii.String("SNS"), Address: topic.TopicArn()}},
		})
	}
	awsbudgets.NewCfnBudget(b.stack, jsii.String("Budget"), &awsbudgets.CfnBudgetProps{
		Budget: &awsbudgets.CfnBudget_BudgetDataProperty{
			BudgetName: jsii.String(b.cloud.Name + "-" + b.cloud.Region), BudgetType: jsii.String("COST"), TimeUnit: jsii.String("MONTHLY"),
			BudgetLimit: &awsbudgets.CfnBudget_SpendProperty{Amount: jsii.Number(b.Budget), Unit: jsii.String("USD")},
		},
		NotificationsWithSubscribers: tell,
	})
}
