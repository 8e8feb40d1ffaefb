package stack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// wild reports whether a name in a policy contains a wildcard.
func wild(name string) bool { return strings.ContainsAny(name, "*?") }

func TestWildcardsHaveWrittenReasons(t *testing.T) {
	t.Parallel()
	for _, s := range asUsual(t).policies() {
		if !s.allow {
			continue // wildcards in a denial are harmless
		}
		for _, action := range s.actions {
			if wild(action) {
				t.Errorf("%s: %s allows %s", s.of.id, s.id, action)
			}
		}
		for _, r := range s.resources {
			if wild(r) && !strings.Contains(flat(s.of.Metadata.at("cdk_nag.rules_to_suppress")), s.id+": ") {
				t.Errorf("%s: %s allows %v on %s without a written reason", s.of.id, s.id, s.actions, r)
			}
		}
	}
}

func TestReasonsBelongToWildcards(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	for id, r := range made.Resources {
		if r.Type != "AWS::IAM::Role" && r.Type != "AWS::IAM::ManagedPolicy" {
			continue
		}
		for _, s := range made.policyOf(id) {
			if reasons := flat(r.Metadata.at("cdk_nag.rules_to_suppress")); strings.Contains(reasons, s.id+": ") &&
				!slices.ContainsFunc(s.resources, wild) {
				t.Errorf("%s: %s has a reason but no wildcard", id, s.id)
			}
		}
	}
}

func TestStackIsNotPublic(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	bucket := made.one(t, "AWS::S3::Bucket").Properties
	for _, setting := range []string{"BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"} {
		if bucket.at("PublicAccessBlockConfiguration."+setting) != true {
			t.Errorf("the bucket does not set %s", setting)
		}
	}
	for _, s := range made.policies() {
		if s.allow && strings.Contains(s.principal, "*") {
			t.Errorf("%s: %s allows the public %v", s.of.id, s.id, s.actions)
		}
	}
	for _, p := range made.all("AWS::Lambda::Permission") {
		if p.Properties.text("Principal") == "*" || p.Properties.at("SourceArn") == nil {
			t.Errorf("%s lets the public invoke %s", p.id, p.Properties.text("FunctionName"))
		}
	}
	if got := made.one(t, "AWS::Lambda::Url").Properties.text("AuthType"); got != "AWS_IAM" {
		t.Errorf("the API's authentication is %s, want AWS_IAM", got)
	}
	for _, w := range made.all("AWS::EC2::SecurityGroup") {
		if in := w.Properties.list("SecurityGroupIngress"); len(in) > 0 {
			t.Errorf("%s admits connections: %v", w.id, in)
		}
	}
	if in := made.all("AWS::EC2::SecurityGroupIngress"); len(in) > 0 {
		t.Errorf("the stack admits connections: %v", in)
	}
}

// The API's URL is public only if the deployment has a token, which the API then
// requires.
func TestAPIURLIsPublicOnlyWithToken(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Deployment.Secrets = []string{"hf-token", "api-token"}
	}))
	if got := made.one(t, "AWS::Lambda::Url").Properties.text("AuthType"); got != "NONE" {
		t.Errorf("the API's authentication is %s, want NONE", got)
	}
	opened := 0
	for _, p := range made.all("AWS::Lambda::Permission") {
		if p.Properties.text("Principal") != "*" {
			continue
		}
		opened++
		byURL := p.Properties.text("FunctionUrlAuthType") == "NONE" ||
			p.Properties.at("InvokedViaFunctionUrl") == true
		if !byURL || !strings.Contains(p.Properties.text("FunctionName"), "api") {
			t.Errorf("%s allows more than calls by the URL: %v", p.id, p.Properties)
		}
	}
	if opened != 2 {
		t.Errorf("%d permissions open the API, want 2", opened)
	}
	for _, function := range []string{"submit", "plan", "coordinate", "finalize", "reclaim", "interrupt"} {
		for _, s := range made.role(t, function) {
			if slices.Contains(s.actions, "secretsmanager:GetSecretValue") {
				t.Errorf("%s may read %v", function, s.resources)
			}
		}
	}
	for _, s := range made.role(t, "api") {
		if slices.Contains(s.actions, "secretsmanager:GetSecretValue") &&
			(len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":secret:acme/api-token-??????")) {
			t.Errorf("the API may read %v", s.resources)
		}
	}
}

func TestQueuesHaveDeadLetterQueuesWithAlarms(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	alarmed := map[string]bool{}
	for _, a := range made.all("AWS::CloudWatch::Alarm") {
		if len(a.Properties.list("AlarmActions")) == 0 {
			t.Errorf("%s has no action", a.id)
		}
		for _, d := range a.Properties.list("Dimensions") {
			alarmed[tree(d.(map[string]any)).text("Value")] = true
		}
	}
	names := map[string]bool{}
	for _, q := range made.all("AWS::SQS::Queue") {
		name := q.Properties.text("QueueName")
		names[name] = true
		if q.Properties.at("SqsManagedSseEnabled") != true {
			t.Errorf("%s is not encrypted", name)
		}
		if strings.HasSuffix(name, "-dead") {
			if !alarmed[name] {
				t.Errorf("the dead-letter queue %s has no alarm", name)
			}
			continue
		}
		dead := strings.TrimPrefix(q.Properties.text("RedrivePolicy.deadLetterTargetArn"), "<")
		dead = strings.TrimSuffix(dead, ".Arn>")
		want := name + "-dead"
		if name == "acme-doctor" { // its messages rarely end there, so it shares a queue and an alarm
			want = "acme-tasks-dead"
		}
		if made.Resources[dead].Properties.text("QueueName") != want {
			t.Errorf("the dead letters of %s go to %q, want %s", name, dead, want)
		}
		if n := q.Properties.number("RedrivePolicy.maxReceiveCount"); n != 16 {
			t.Errorf("%s dead-letters a message after %v receives, want 16", name, n)
		}
	}
	for _, name := range []string{"coordinate", "work-small", "urgent-small", "work-large", "urgent-large",
		"work-trainers", "urgent-trainers"} {
		if !names["acme-"+name] || !names["acme-"+name+"-dead"] {
			t.Errorf("the queue acme-%s or its dead-letter queue is missing: %v", name, names)
		}
	}
	if len(names) != 16 { // fourteen above, tasks-dead and doctor
		t.Errorf("the template has %d queues, want 16: %v", len(names), names)
	}
}

func TestVisibilityTimeoutIsSixTimesTheFunctionTimeout(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	mapping := made.one(t, "AWS::Lambda::EventSourceMapping").Properties
	function := made.physical(t, "AWS::Lambda::Function", "FunctionName", "acme-coordinate")
	queue := made.physical(t, "AWS::SQS::Queue", "QueueName", "acme-coordinate")
	if mapping.text("FunctionName") != "<"+function.id+">" || mapping.text("EventSourceArn") != "<"+queue.id+".Arn>" {
		t.Errorf("the mapping is %v", mapping)
	}
	visibility, timeout := queue.Properties.number("VisibilityTimeout"), function.Properties.number("Timeout")
	if visibility < 6*timeout || timeout == 0 {
		t.Errorf("the visibility timeout is %v s and the function's timeout %v s", visibility, timeout)
	}
	if got := texts(mapping.at("FunctionResponseTypes")); !slices.Equal(got, []string{"ReportBatchItemFailures"}) {
		t.Errorf("failures are not reported per message: %v", got)
	}
	if mapping.number("MaximumBatchingWindowInSeconds") != 1 || mapping.number("BatchSize") != 1000 ||
		mapping.number("ScalingConfig.MaximumConcurrency") != 2 {
		t.Errorf("the mapping is %v", mapping)
	}
}

func TestFunctionsHaveLimitsAndRolesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := settings(t)
	made := synth(t, s)
	roles := map[string]string{}
	functions := made.all("AWS::Lambda::Function")
	for _, f := range functions {
		p, name := f.Properties, f.Properties.text("FunctionName")
		if p.text("RecursiveLoop") != "Terminate" {
			t.Errorf("%s may invoke itself without end", name)
		}
		if p.at("ReservedConcurrentExecutions") != nil {
			t.Errorf("%s reserves instances, which an account that may have 10 of them refuses", name)
		}
		if p.number("Timeout") == 0 || p.number("MemorySize") == 0 {
			t.Errorf("%s has no timeout or no memory size", name)
		}
		if p.text("Runtime") != "provided.al2023" || p.text("Architectures") != `["arm64"]` {
			t.Errorf("%s runs on %s %s", name, p.text("Runtime"), p.text("Architectures"))
		}
		if other, ok := roles[p.text("Role")]; ok {
			t.Errorf("%s and %s share a role", name, other)
		}
		roles[p.text("Role")] = name
		group := made.physical(t, "AWS::Logs::LogGroup", "LogGroupName", "/aws/lambda/"+name)
		if p.text("LoggingConfig.LogGroup") != "<"+group.id+">" || group.Properties.number("RetentionInDays") != 30 {
			t.Errorf("%s logs to %s, want a group that keeps logs for 30 days", name, p.text("LoggingConfig.LogGroup"))
		}
		variables, _ := p.at("Environment.Variables").(map[string]any)
		if len(variables) != 1 {
			t.Errorf("%s gets %d variables, want 1", name, len(variables))
		}
		got, err := config.ParseDeployment("ROLLOUT_CONFIG", []byte(flat(variables["ROLLOUT_CONFIG"])))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(s.Deployment) {
			t.Errorf("%s gets another config: %v, %+v", name, err, got)
		}
	}
	if len(functions) != 7 {
		t.Errorf("the template has %d functions, want 7", len(functions))
	}
}

func TestFailedAsynchronousCallsAreDeadLettered(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	kept := map[string]string{}
	for _, c := range made.all("AWS::Lambda::EventInvokeConfig") {
		id := strings.Trim(c.Properties.text("FunctionName"), "<>")
		name := made.Resources[id].Properties.text("FunctionName")
		kept[name] = c.Properties.text("DestinationConfig.OnFailure.Destination")
	}
	for _, function := range []string{"submit", "plan", "finalize", "interrupt"} {
		to := kept["acme-"+function]
		if !strings.HasSuffix(to, ":acme-tasks-dead") {
			t.Errorf("failed calls of %s go to %q", function, to)
		}
		if !slices.ContainsFunc(made.role(t, function), func(s statement) bool {
			return slices.Contains(s.actions, "sqs:SendMessage") && slices.Contains(s.resources, to)
		}) {
			t.Errorf("%s may not send to %s", function, to)
		}
	}
	if to, ok := kept["acme-reclaim"]; !ok || to != "" {
		t.Errorf("failed calls of reclaim go to %q, want nowhere: it is invoked again in a minute", to)
	}
}

// Output must never start a run: the prefixes that functions and machines may
// write to and the prefix of prompts don't contain each other.
func TestOutputPrefixesAndPromptsPrefixAreDisjoint(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "team-a/"} {
		made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Cloud.S3.Prefix = prefix }))
		rules := made.one(t, "AWS::S3::Bucket").Properties.list("NotificationConfiguration.LambdaConfigurations")
		if len(rules) != 1 {
			t.Fatalf("the bucket has %d notifications, want 1", len(rules))
		}
		filter := tree(rules[0].(map[string]any)).list("Filter.S3Key.Rules")[0].(map[string]any)
		input := flat(filter["Value"])
		if flat(filter["Name"]) != "prefix" || input != prefix+"prompts/" {
			t.Errorf("the bucket notifies of %v", filter)
		}
		written := 0
		for _, s := range made.policies() {
			if !s.allow || !slices.Contains(s.actions, "s3:PutObject") ||
				s.of.Type == "AWS::IAM::ManagedPolicy" { // for people, who upload prompts
				continue
			}
			for _, r := range s.resources {
				_, output, _ := strings.Cut(r, "acme-batches/")
				output = strings.TrimSuffix(output, "*")
				written++
				if strings.HasPrefix(output, input) || strings.HasPrefix(input, output) {
					t.Errorf("%s may write below %q, and prompts are below %q", s.of.id, output, input)
				}
			}
		}
		if written == 0 {
			t.Error("no policy allows writing objects")
		}
	}
}

func TestReadConfigRefusesPrefixesThatMixOutputAndInput(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"prompts/", "runs/", "team-b/pending/", "cas/"} {
		src := fmt.Sprintf("schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\n"+
			"[cloud.s3]\nbucket = \"acme\"\nprefix = %q\n", prefix)
		_, _, err := stack.ReadConfig("rollout.toml", []byte(src))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func TestBucketAndTableKeepTheirData(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	bucket := made.one(t, "AWS::S3::Bucket")
	if bucket.Properties.text("VersioningConfiguration.Status") != "Enabled" ||
		bucket.DeletionPolicy != "RetainExceptOnCreate" ||
		bucket.UpdateReplacePolicy != "Retain" {
		t.Errorf("the bucket's versioning is %s and its policies %s and %s, "+
			"want Enabled, RetainExceptOnCreate and Retain",
			bucket.Properties.text("VersioningConfiguration.Status"), bucket.DeletionPolicy, bucket.UpdateReplacePolicy)
	}
	want := map[string]string{"team-a/work/": "90", "team-a/pending/": "7"}
	aborts := false
	for _, r := range bucket.Properties.list("LifecycleConfiguration.Rules") {
		rule := tree(r.(map[string]any))
		if rule.text("Status") != "Enabled" {
			t.Errorf("a lifecycle rule is %s, want Enabled", rule.text("Status"))
		}
		aborts = aborts || rule.number("AbortIncompleteMultipartUpload.DaysAfterInitiation") > 0
		days := rule.text("ExpirationInDays")
		if days == "" {
			continue
		}
		if want[rule.text("Prefix")] != days {
			t.Errorf("objects below %q are deleted after %s days", rule.text("Prefix"), days)
		}
		delete(want, rule.text("Prefix"))
	}
	if len(want) > 0 || !aborts {
		t.Errorf("prefixes without a rule: %v; incomplete uploads are aborted: %t", want, aborts)
	}
	table := made.one(t, "AWS::DynamoDB::Table")
	if table.Properties.text("BillingMode") != "PAY_PER_REQUEST" || table.DeletionPolicy != "RetainExceptOnCreate" ||
		table.UpdateReplacePolicy != "Retain" ||
		table.Properties.at("PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled") != true {
		t.Errorf("the table is %v, %s", table.Properties, table.DeletionPolicy)
	}
	refused := 0
	for _, s := range made.policies() {
		if !s.allow && s.condition.text("Bool.aws:SecureTransport") == "false" &&
			s.of.Type == "AWS::S3::BucketPolicy" {
			refused++
		}
	}
	if refused != 1 {
		t.Error("the bucket accepts requests without TLS")
	}
}

func TestEmailIsSubscribedToAlarmsAndBudget(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Email, s.Machines, s.Budget = "ops@acme.example", false, 42
	}))
	topic := made.physical(t, "AWS::SNS::Topic", "TopicName", "acme-alarms")
	if s := made.physical(t, "AWS::SNS::Subscription", "TopicArn", "<"+topic.id+">").Properties; s.text(
		"Endpoint") != "ops@acme.example" {
		t.Errorf("the subscription is %v", s)
	}
	budget := made.one(t, "AWS::Budgets::Budget").Properties
	if budget.number("Budget.BudgetLimit.Amount") != 42 || budget.text("Budget.TimeUnit") != "MONTHLY" ||
		len(budget.list("NotificationsWithSubscribers")) != 2 {
		t.Errorf("the budget is %v", budget)
	}
	for _, s := range []string{"cloudwatch", "budgets"} {
		if !slices.ContainsFunc(made.policies(), func(p statement) bool {
			return p.of.Type == "AWS::SNS::TopicPolicy" && p.allow && strings.Contains(p.principal, s) &&
				p.condition.text("StringEquals.aws:SourceAccount") == "<AWS::AccountId>"
		}) {
			t.Errorf("%s may not publish to the topic", s)
		}
	}
}

// An idle stack costs nothing by the hour. Alarms and dashboards cost money by
// the month, but an account's first ten alarms and three dashboards are free.
func TestIdleStackIsFree(t *testing.T) {
	t.Parallel()
	free := []string{
		"AWS::S3::Bucket",
		"AWS::S3::BucketPolicy",
		"AWS::DynamoDB::Table",
		"AWS::SQS::Queue",
		"AWS::SQS::QueuePolicy",
		"AWS::SNS::Topic",
		"AWS::SNS::TopicPolicy",
		"AWS::IAM::Role",
		"AWS::IAM::InstanceProfile",
		"AWS::IAM::ManagedPolicy",
		"AWS::Logs::LogGroup",
		"AWS::Events::Rule",
		"AWS::Budgets::Budget",
		"AWS::Lambda::Function",
		"AWS::Lambda::Permission",
		"AWS::Lambda::EventInvokeConfig",
		"AWS::Lambda::EventSourceMapping",
		"AWS::Lambda::Url",
		"AWS::EC2::VPC",
		"AWS::EC2::Subnet",
		"AWS::EC2::RouteTable",
		"AWS::EC2::SubnetRouteTableAssociation",
		"AWS::EC2::Route",
		"AWS::EC2::InternetGateway",
		"AWS::EC2::VPCGatewayAttachment",
		"AWS::EC2::VPCEndpoint",
		"AWS::EC2::SecurityGroup",
		"AWS::EC2::LaunchTemplate",
		"AWS::AutoScaling::AutoScalingGroup",
		"AWS::CDK::Metadata",
		"AWS::Events::EventBus",
		"AWS::CloudWatch::Alarm",
		"AWS::CloudWatch::Dashboard",
	}
	made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Pools = s.Deployment.Pools[:1] }))
	for id, r := range made.Resources {
		if !slices.Contains(free, r.Type) {
			t.Errorf("%s is a %s: does it cost money by the hour?", id, r.Type)
		}
	}
	if n := len(made.all("AWS::CloudWatch::Alarm")); n > 10 {
		t.Errorf("the template has %d alarms, and ten are free", n)
	}
	if n := len(made.all("AWS::CloudWatch::Dashboard")); n != 1 {
		t.Errorf("the template has %d dashboards, want 1", n)
	}
	for _, e := range made.all("AWS::EC2::VPCEndpoint") {
		if e.Properties.text("VpcEndpointType") != "Gateway" {
			t.Errorf("%s is not a gateway endpoint, so it costs money by the hour", e.id)
		}
	}
}

// Data outlives its stack; the next stack uses it as it is.
func TestExistingBucketAndTableAreNotInTheTemplate(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Bucket, s.Table, s.Machines = stack.Existing, stack.Existing, false
	}))
	for _, kind := range []string{"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::DynamoDB::Table"} {
		if found := made.all(kind); len(found) > 0 {
			t.Errorf("the template has a %s", kind)
		}
	}
	submit := made.physical(t, "AWS::Lambda::Function", "FunctionName", "acme-submit")
	called := false
	for _, r := range made.all("AWS::Events::Rule") {
		if r.Properties.text("EventPattern.source") != `["aws.s3"]` {
			continue
		}
		called = true
		const want = `{"bucket":{"name":["acme-batches"]},"object":{"key":[{"prefix":"team-a/prompts/"}]}}`
		if got := r.Properties.text("EventPattern.detail"); got != want {
			t.Errorf("submit is invoked for %s, want %s", got, want)
		}
		if to := tree(r.Properties.list("Targets")[0].(map[string]any)).text("Arn"); to != "<"+submit.id+".Arn>" {
			t.Errorf("new prompts invoke %s, want submit", to)
		}
	}
	if !called {
		t.Error("no rule invokes a function for new prompts")
	}
}

// Only reclaim signs events, and only with a webhook in the config. It records them always.
func TestOnlyReclaimMayPostEvents(t *testing.T) {
	t.Parallel()
	for name, webhook := range map[string]bool{"without a webhook": false, "with a webhook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := synth(t, settings(t, func(s *stack.Settings) {
				s.Deployment.Secrets, s.Deployment.Notify = []string{"webhook-key", "hf-token"}, config.DefaultNotify()
				if webhook {
					s.Deployment.Notify.Webhook, s.Deployment.Notify.Secret = "https://example.com/x", "webhook-key"
				}
			}))
			var readers []string
			for _, r := range made.all("AWS::IAM::Role") {
				for _, s := range made.policyOf(r.id) {
					if slices.Contains(s.actions, "secretsmanager:GetSecretValue") &&
						slices.ContainsFunc(s.resources, func(arn string) bool { return strings.Contains(arn, "webhook-key") }) {
						readers = append(readers, r.id)
					}
				}
			}
			f := made.physical(t, "AWS::Lambda::Function", "FunctionName", "acme-reclaim")
			role := strings.TrimSuffix(strings.Trim(f.Properties.text("Role"), "<>"), ".Arn")
			if webhook != slices.Equal(readers, []string{role}) {
				t.Errorf("the key of the webhook is read by %q; reclaim is %s", readers, role)
			}
			outbox := false
			for _, s := range made.policyOf(role) {
				outbox = outbox || slices.Contains(s.actions, "dynamodb:PutItem") && slices.Contains(s.partitions(), "outbox/")
			}
			if !outbox {
				t.Error("reclaim may not write to the outbox")
			}
		})
	}
}
