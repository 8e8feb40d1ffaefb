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

// monitoring adds the alarms, the dashboard and the budget.
func (b *builder) monitoring(queues map[string]awssqs.Queue) {
	topic := b.topic()
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if queue.IsDeadLetterQueue(name) {
			b.alarm(topic, alarm{
				id: "Alarm-" + name,
				description: "There are messages that nothing can be done with: " +
					"see what they say, and send them again or delete them.",
				metric: metric{
					"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", b.cloud.SQS.Prefix + name, "Maximum",
				},
				threshold: 1,
				periods:   1,
			})
		}
	}
	coordinateQueue := b.cloud.SQS.Prefix + host.CoordinateQueue
	b.alarm(topic, alarm{
		id:          "Alarm-late",
		description: "Nobody has decided on what happened for 10 minutes: see the log of coordinate.",
		metric:      metric{"AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", coordinateQueue, "Maximum"},
		threshold:   600, // seconds
		periods:     1,
	})
	b.alarm(topic, alarm{
		id:          "Alarm-reclaim",
		description: "What is lost is not looked for: see the log of reclaim.",
		metric:      metric{"AWS/Lambda", "Errors", "FunctionName", b.cloud.FunctionName(reclaim), "Sum"},
		threshold:   3,
		periods:     3,
	})
	b.dashboard()
	if b.Budget > 0 {
		b.budget(topic)
	}
}

// topic adds the topic that alarms are published to, and subscribes the email
// address if there is one.
func (b *builder) topic() awssns.Topic {
	topic := awssns.NewTopic(
		b.stack,
		jsii.String("Alarms"),
		&awssns.TopicProps{TopicName: jsii.String(b.cloud.Name + "-alarms"), EnforceSSL: jsii.Bool(true)},
	)
	for _, service := range []string{"cloudwatch", "budgets"} {
		topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Sid:        jsii.String(service),
			Actions:    jsii.Strings("sns:Publish"),
			Resources:  jsii.Strings(*topic.TopicArn()),
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

// metric is a CloudWatch metric and the statistic of it that counts.
type metric struct{ namespace, name, dimension, value, statistic string }

// alarm is a CloudWatch alarm. It is raised when the metric is at least the
// threshold in as many consecutive periods of 5 minutes as periods says.
type alarm struct {
	id, description    string
	metric             metric
	threshold, periods float64
}

// alarm adds an alarm that notifies the topic.
func (b *builder) alarm(topic awssns.Topic, a alarm) {
	m := a.metric
	awscloudwatch.NewCfnAlarm(b.stack, &a.id, &awscloudwatch.CfnAlarmProps{
		AlarmDescription:   &a.description,
		AlarmActions:       &[]any{topic.TopicArn()},
		Namespace:          &m.namespace,
		MetricName:         &m.name,
		Statistic:          &m.statistic,
		Dimensions:         []any{&awscloudwatch.CfnAlarm_DimensionProperty{Name: &m.dimension, Value: &m.value}},
		Period:             jsii.Number(300),
		EvaluationPeriods:  &a.periods,
		Threshold:          &a.threshold,
		ComparisonOperator: jsii.String("GreaterThanOrEqualToThreshold"),
		TreatMissingData:   jsii.String("notBreaching"),
	})
}

// dashboard adds a dashboard with the installation's metrics. An account's first
// three dashboards, of up to 50 metrics each, are free.
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
	for _, name := range b.functionNames() {
		functions = append(functions, b.cloud.FunctionName(name))
	}
	waiting := queueNames(b.Deployment)
	lengths := func(queues []string) [][]any {
		return of("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", prefixed(queues)...)
	}
	add("Messages that wait", "Maximum", lengths(waiting)...)
	add("Dead letters", "Maximum", lengths(append(deadOf(waiting), deadTasks()))...)
	add("Functions that failed", "Sum", of("AWS/Lambda", "Errors", "FunctionName", functions...)...)
	add("Calls of functions", "Sum", of("AWS/Lambda", "Invocations", "FunctionName", functions...)...)
	add("How long functions take (ms)", "Maximum", of("AWS/Lambda", "Duration", "FunctionName", functions...)...)
	table := func(metric, label string) []any {
		return []any{"AWS/DynamoDB", metric, "TableName", b.cloud.DynamoDB.Table, map[string]any{"label": label}}
	}
	add("Documents written and read", "Sum",
		table("ConsumedWriteCapacityUnits", "written"), table("ConsumedReadCapacityUnits", "read"))
	if b.Machines {
		var groups []string
		for _, p := range b.Deployment.Pools {
			groups = append(groups, b.cloud.FleetName(p.Name))
		}
		sizes := func(metric string) [][]any {
			return of("AWS/AutoScaling", metric, "AutoScalingGroupName", groups...)
		}
		add("Machines wanted", "Maximum", sizes("GroupDesiredCapacity")...)
		add("Machines at work", "Maximum", sizes("GroupInServiceInstances")...)
	}
	body, err := json.Marshal(map[string]any{"widgets": widgets})
	if err != nil {
		panic(err) // can't happen: maps of strings and numbers always marshal
	}
	awscloudwatch.NewCfnDashboard(b.stack, jsii.String("Dashboard"), &awscloudwatch.CfnDashboardProps{
		DashboardName: &b.cloud.Name, DashboardBody: jsii.String(string(body)),
	})
}

// deadOf returns the dead-letter queues of the named queues.
func deadOf(names []string) (dead []string) {
	for _, name := range names {
		dead = append(dead, queue.DeadLetterQueue(name))
	}
	return dead
}

// budget adds a budget that notifies the topic when the account has spent 80 %
// of it in a month, and when the forecast exceeds it. It counts the whole
// account: to count by tag, the account must have activated that tag.
func (b *builder) budget(topic awssns.Topic) {
	var tell []any
	for _, n := range []struct {
		kind    string
		percent float64
	}{{"ACTUAL", 80}, {"FORECASTED", 100}} {
		tell = append(tell, &awsbudgets.CfnBudget_NotificationWithSubscribersProperty{
			Notification: &awsbudgets.CfnBudget_NotificationProperty{
				NotificationType:   &n.kind,
				ComparisonOperator: jsii.String("GREATER_THAN"),
				Threshold:          &n.percent,
				ThresholdType:      jsii.String("PERCENTAGE"),
			},
			Subscribers: []any{
				&awsbudgets.CfnBudget_SubscriberProperty{
					SubscriptionType: jsii.String("SNS"),
					Address:          topic.TopicArn(),
				},
			},
		})
	}
	awsbudgets.NewCfnBudget(b.stack, jsii.String("Budget"), &awsbudgets.CfnBudgetProps{
		Budget: &awsbudgets.CfnBudget_BudgetDataProperty{
			BudgetName:  jsii.String(b.cloud.Name + "-" + b.cloud.Region),
			BudgetType:  jsii.String("COST"),
			TimeUnit:    jsii.String("MONTHLY"),
			BudgetLimit: &awsbudgets.CfnBudget_SpendProperty{Amount: jsii.Number(b.Budget), Unit: jsii.String("USD")},
		},
		NotificationsWithSubscribers: tell,
	})
}
