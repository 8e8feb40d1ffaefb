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

// wild reports whether a name in a policy stands for more than itself.
func wild(name string) bool { return strings.ContainsAny(name, "*?") }

func TestNoWildcardWithoutAWrittenReason(t *testing.T) {
	t.Parallel()
	for _, s := range asUsual(t).policies() {
		if !s.allow {
			continue // it forbids
		}
		for _, action := range s.actions {
			if wild(action) {
				t.Errorf("%s: %s allows %s", s.of.id, s.id, action)
			}
		}
		for _, r := range s.resources {
			if wild(r) && !strings.Contains(flat(s.of.Metadata.at("cdk_nag.rules_to_suppress")), s.id+": ") {
				t.Errorf("%s: %s allows %v of %s, and nobody has written why", s.of.id, s.id, s.actions, r)
			}
		}
	}
}

func TestEveryReasonIsOfAStatement(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	for id, r := range made.Resources {
		if r.Type != "AWS::IAM::Role" && r.Type != "AWS::IAM::ManagedPolicy" {
			continue
		}
		for _, s := range made.policyOf(id) {
			if reasons := flat(r.Metadata.at("cdk_nag.rules_to_suppress")); strings.Contains(reasons, s.id+": ") && !slices.ContainsFunc(s.resources, wild) {
				t.Errorf("%s: %s needs no reason", id, s.id)
			}
		}
	}
}

func TestNothingIsPublic(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	bucket := made.one(t, "AWS::S3::Bucket").Properties
	for _, door := range []string{"BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"} {
		if bucket.at("PublicAccessBlockConfiguration."+door) != true {
			t.Errorf("the bucket does not have %s", door)
		}
	}
	for _, s := range made.policies() {
		if s.allow && strings.Contains(s.principal, "*") {
			t.Errorf("%s: %s allows everybody %v", s.of.id, s.id, s.actions)
		}
	}
	for _, p := range made.all("AWS::Lambda::Permission") {
		if p.Properties.text("Principal") == "*" || p.Properties.at("SourceArn") == nil {
			t.Errorf("%s lets anybody call %s", p.id, p.Properties.text("FunctionName"))
		}
	}
	if got := made.one(t, "AWS::Lambda::Url").Properties.text("AuthType"); got != "AWS_IAM" {
		t.Errorf("the API asks for %s", got)
	}
	for _, w := range made.all("AWS::EC2::SecurityGroup") {
		if in := w.Properties.list("SecurityGroupIngress"); len(in) > 0 {
			t.Errorf("%s lets in %v", w.id, in)
		}
	}
	if in := made.all("AWS::EC2::SecurityGroupIngress"); len(in) > 0 {
		t.Errorf("somebody is let in: %v", in)
	}
}

// Who has the token may ask the API from anywhere: then, and only then, its
// address is open.
func TestTheApiIsOpenedByItsTokenAlone(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Secrets = []string{"hf-token", "api-token"} }))
	if got := made.one(t, "AWS::Lambda::Url").Properties.text("AuthType"); got != "NONE" {
		t.Errorf("the API asks for %s", got)
	}
	opened := 0
	for _, p := range made.all("AWS::Lambda::Permission") {
		if p.Properties.text("Principal") != "*" {
			continue
		}
		opened++
		byURL := p.Properties.text("FunctionUrlAuthType") == "NONE" || p.Properties.at("InvokedViaFunctionUrl") == true
		if !byURL || !strings.Contains(p.Properties.text("FunctionName"), "api") {
			t.Errorf("%s: %v", p.id, p.Properties)
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
		if slices.Contains(s.actions, "secretsmanager:GetSecretValue") && (len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":secret:acme/api-token-??????")) {
			t.Errorf("the API may read %v", s.resources)
		}
	}
}

func TestEveryQueueHasDeadLettersAndAnAlarm(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	alarmed := map[string]bool{}
	for _, a := range made.all("AWS::CloudWatch::Alarm") {
		if len(a.Properties.list("AlarmActions")) == 0 {
			t.Errorf("%s tells nobody", a.id)
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
				t.Errorf("nobody is told of what is in %s", name)
			}
			continue
		}
		dead := strings.TrimSuffix(strings.TrimPrefix(q.Properties.text("RedrivePolicy.deadLetterTargetArn"), "<"), ".Arn>")
		want := name + "-dead"
		if name == "acme-doctor" { // which has none as a rule, and shares an alarm
			want = "acme-tasks-dead"
		}
		if made.Resources[dead].Properties.text("QueueName") != want {
			t.Errorf("the dead letters of %s go to %q", name, dead)
		}
		if n := q.Properties.number("RedrivePolicy.maxReceiveCount"); n != 16 {
			t.Errorf("%s gives up after %v receives", name, n)
		}
	}
	for _, name := range []string{"coordinate", "work-small", "urgent-small", "work-large", "urgent-large"} {
		if !names["acme-"+name] || !names["acme-"+name+"-dead"] {
			t.Errorf("the queue acme-%s is not there with its dead letters: %v", name, names)
		}
	}
	if len(names) != 12 { // and tasks-dead, and doctor
		t.Errorf("there are %d queues: %v", len(names), names)
	}
}

func TestAPolledQueueHidesItsMessagesForSixTimesAsLongAsItsFunctionMayTake(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	mapping := made.one(t, "AWS::Lambda::EventSourceMapping").Properties // one polled queue
	function := made.physical(t, "AWS::Lambda::Function", "FunctionName", "acme-coordinate")
	queue := made.physical(t, "AWS::SQS::Queue", "QueueName", "acme-coordinate")
	if mapping.text("FunctionName") != "<"+function.id+">" || mapping.text("EventSourceArn") != "<"+queue.id+".Arn>" {
		t.Errorf("the mapping is %v", mapping)
	}
	if v, limit := queue.Properties.number("VisibilityTimeout"), function.Properties.number("Timeout"); v < 6*limit || limit == 0 {
		t.Errorf("messages are hidden for %v s, a call may take %v s", v, limit)
	}
	if got := texts(mapping.at("FunctionResponseTypes")); !slices.Equal(got, []string{"ReportBatchItemFailures"}) {
		t.Errorf("a batch fails as a whole: %v", got)
	}
	if mapping.number("MaximumBatchingWindowInSeconds") != 1 || mapping.number("BatchSize") != 1000 || mapping.number("ScalingConfig.MaximumConcurrency") != 2 {
		t.Errorf("the mapping is %v", mapping)
	}
}

func TestEveryFunctionIsBounded(t *testing.T) {
	t.Parallel()
	s := settings(t)
	made := synth(t, s)
	roles := map[string]string{}
	functions := made.all("AWS::Lambda::Function")
	for _, f := range functions {
		p, name := f.Properties, f.Properties.text("FunctionName")
		if p.text("RecursiveLoop") != "Terminate" {
			t.Errorf("%s may call itself without end", name)
		}
		if p.number("Timeout") == 0 || p.number("MemorySize") == 0 {
			t.Errorf("%s has no limits", name)
		}
		if p.text("Runtime") != "provided.al2023" || p.text("Architectures") != `["arm64"]` {
			t.Errorf("%s runs on %s %s", name, p.text("Runtime"), p.text("Architectures"))
		}
		if other, ok := roles[p.text("Role")]; ok {
			t.Errorf("%s and %s have one role", name, other)
		}
		roles[p.text("Role")] = name
		group := made.physical(t, "AWS::Logs::LogGroup", "LogGroupName", "/aws/lambda/"+name)
		if p.text("LoggingConfig.LogGroup") != "<"+group.id+">" || group.Properties.number("RetentionInDays") != 30 {
			t.Errorf("%s writes to %s", name, p.text("LoggingConfig.LogGroup"))
		}
		variables, _ := p.at("Environment.Variables").(map[string]any)
		if len(variables) != 1 {
			t.Errorf("%s gets %d variables", name, len(variables))
		}
		got, err := config.ParseDeployment("ROLLOUT_CONFIG", []byte(flat(variables["ROLLOUT_CONFIG"])))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(s.Deployment) {
			t.Errorf("%s gets another config: %v, %+v", name, err, got)
		}
	}
	if len(functions) != 7 {
		t.Errorf("there are %d functions", len(functions))
	}
}

func TestAFailedAsynchronousCallIsKept(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	kept := map[string]string{}
	for _, c := range made.all("AWS::Lambda::EventInvokeConfig") {
		id := strings.Trim(c.Properties.text("FunctionName"), "<>")
		kept[made.Resources[id].Properties.text("FunctionName")] = c.Properties.text("DestinationConfig.OnFailure.Destination")
	}
	for _, function := range []string{"submit", "plan", "finalize", "interrupt"} {
		to := kept["acme-"+function]
		if !strings.HasSuffix(to, ":acme-tasks-dead") {
			t.Errorf("what %s fails with goes to %q", function, to)
		}
		if !slices.ContainsFunc(made.role(t, function), func(s statement) bool {
			return slices.Contains(s.actions, "sqs:SendMessage") && slices.Contains(s.resources, to)
		}) {
			t.Errorf("%s may not send to %s", function, to)
		}
	}
	if to, ok := kept["acme-reclaim"]; !ok || to != "" {
		t.Errorf("reclaim's failures go to %q: it is called again in a minute", to)
	}
}

// What is written never begins a run: no key that a function or a machine may
// make an object of is below the prompts, nor the other way round.
func TestOutputNeverLandsAmongTheInput(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "team-a/"} {
		made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Cloud.S3.Prefix = prefix }))
		rules := made.one(t, "AWS::S3::Bucket").Properties.list("NotificationConfiguration.LambdaConfigurations")
		if len(rules) != 1 {
			t.Fatalf("%d notifications", len(rules))
		}
		filter := tree(rules[0].(map[string]any)).list("Filter.S3Key.Rules")[0].(map[string]any)
		input := flat(filter["Value"])
		if flat(filter["Name"]) != "prefix" || input != prefix+"prompts/" {
			t.Errorf("runs begin with %v", filter)
		}
		written := 0
		for _, s := range made.policies() {
			if !s.allow || !slices.Contains(s.actions, "s3:PutObject") || s.of.Type == "AWS::IAM::ManagedPolicy" { // of people, who put prompts there
				continue
			}
			for _, r := range s.resources {
				_, output, _ := strings.Cut(r, "acme-batches/")
				output = strings.TrimSuffix(output, "*")
				written++
				if strings.HasPrefix(output, input) || strings.HasPrefix(input, output) {
					t.Errorf("%s writes below %q, and runs begin below %q", s.of.id, output, input)
				}
			}
		}
		if written == 0 {
			t.Error("nobody writes anything")
		}
	}
}

func TestAPrefixThatPutsOutputAmongInputIsRefused(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"prompts/", "runs/", "team-b/pending/", "cas/"} {
		_, _, err := stack.ReadConfig("rollout.toml", fmt.Appendf(nil, "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\n[cloud.s3]\nbucket = \"acme\"\nprefix = %q\n", prefix))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func TestTheBucketKeepsWhatRunsNeed(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	bucket := made.one(t, "AWS::S3::Bucket")
	if bucket.Properties.text("VersioningConfiguration.Status") != "Enabled" || bucket.DeletionPolicy != "Retain" {
		t.Errorf("versions are %s, and without the stack it is %s", bucket.Properties.text("VersioningConfiguration.Status"), bucket.DeletionPolicy)
	}
	want := map[string]string{"team-a/work/": "90", "team-a/pending/": "7"}
	aborts := false
	for _, r := range bucket.Properties.list("LifecycleConfiguration.Rules") {
		rule := tree(r.(map[string]any))
		if rule.text("Status") != "Enabled" {
			t.Errorf("a rule is %s", rule.text("Status"))
		}
		aborts = aborts || rule.number("AbortIncompleteMultipartUpload.DaysAfterInitiation") > 0
		days := rule.text("ExpirationInDays")
		if days == "" {
			continue
		}
		if want[rule.text("Prefix")] != days {
			t.Errorf("what is below %q is gone after %s days", rule.text("Prefix"), days)
		}
		delete(want, rule.text("Prefix"))
	}
	if len(want) > 0 || !aborts {
		t.Errorf("never removed: %v; uploads are given up: %t", want, aborts)
	}
	table := made.one(t, "AWS::DynamoDB::Table")
	if table.Properties.text("BillingMode") != "PAY_PER_REQUEST" || table.DeletionPolicy != "Retain" ||
		table.Properties.at("PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled") != true {
		t.Errorf("the table is %v, %s", table.Properties, table.DeletionPolicy)
	}
	refused := 0
	for _, s := range made.policies() {
		if !s.allow && s.condition.text("Bool.aws:SecureTransport") == "false" && s.of.Type == "AWS::S3::BucketPolicy" {
			refused++
		}
	}
	if refused != 1 {
		t.Error("the bucket is read without TLS")
	}
}

func TestOneEmailHearsOfAlarmsAndOfCosts(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Email, s.Machines, s.Budget = "ops@acme.example", false, 42 }))
	topic := made.one(t, "AWS::SNS::Topic")
	if s := made.one(t, "AWS::SNS::Subscription").Properties; s.text("Endpoint") != "ops@acme.example" || s.text("TopicArn") != "<"+topic.id+">" {
		t.Errorf("the subscription is %v", s)
	}
	budget := made.one(t, "AWS::Budgets::Budget").Properties
	if budget.number("Budget.BudgetLimit.Amount") != 42 || budget.text("Budget.TimeUnit") != "MONTHLY" || len(budget.list("NotificationsWithSubscribers")) != 2 {
		t.Errorf("the budget is %v", budget)
	}
	for _, s := range []string{"cloudwatch", "budgets"} {
		if !slices.ContainsFunc(made.policies(), func(p statement) bool {
			return p.of.Type == "AWS::SNS::TopicPolicy" && p.allow && strings.Contains(p.principal, s) && p.condition.text("StringEquals.aws:SourceAccount") == "<AWS::AccountId>"
		}) {
			t.Errorf("%s may not publish", s)
		}
	}
}

// What costs money while nothing happens is known and listed: alarms (ten are
// free), a dashboard (three are), and nothing by the hour.
func TestNothingCostsByTheHour(t *testing.T) {
	t.Parallel()
	free := []string{"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::SQS::QueuePolicy", "AWS::SNS::Topic", "AWS::SNS::TopicPolicy",
		"AWS::IAM::Role", "AWS::IAM::InstanceProfile", "AWS::IAM::ManagedPolicy", "AWS::Logs::LogGroup", "AWS::Events::Rule", "AWS::Budgets::Budget",
		"AWS::Lambda::Function", "AWS::Lambda::Permission", "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Url",
		"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::RouteTable", "AWS::EC2::SubnetRouteTableAssociation", "AWS::EC2::Route", "AWS::EC2::InternetGateway", "AWS::EC2::VPCGatewayAttachment",
		"AWS::EC2::VPCEndpoint", "AWS::EC2::SecurityGroup", "AWS::EC2::LaunchTemplate", "AWS::AutoScaling::AutoScalingGroup", "AWS::CDK::Metadata",
		"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"}
	made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Pools = s.Deployment.Pools[:1] }))
	for id, r := range made.Resources {
		if !slices.Contains(free, r.Type) {
			t.Errorf("%s is a %s: does it cost money by the hour?", id, r.Type)
		}
	}
	if n := len(made.all("AWS::CloudWatch::Alarm")); n > 10 {
		t.Errorf("there are %d alarms, and ten are free", n)
	}
	if n := len(made.all("AWS::CloudWatch::Dashboard")); n != 1 {
		t.Errorf("there are %d dashboards", n)
	}
	for _, e := range made.all("AWS::EC2::VPCEndpoint") {
		if e.Properties.text("VpcEndpointType") != "Gateway" {
			t.Errorf("%s is no gateway: it costs by the hour", e.id)
		}
	}
}

// Data outlives its stack, and the next stack takes it as it is.
func TestABucketAndATableThatAreThereAreLeftAlone(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Bucket, s.Table, s.Machines = stack.Existing, stack.Existing, false }))
	for _, kind := range []string{"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::DynamoDB::Table"} {
		if found := made.all(kind); len(found) > 0 {
			t.Errorf("a %s is made", kind)
		}
	}
	submit := made.physical(t, "AWS::Lambda::Function", "FunctionName", "acme-submit")
	called := false
	for _, r := range made.all("AWS::Events::Rule") {
		if r.Properties.text("EventPattern.source") != `["aws.s3"]` {
			continue
		}
		called = true
		if got, want := r.Properties.text("EventPattern.detail"), `{"bucket":{"name":["acme-batches"]},"object":{"key":[{"prefix":"team-a/prompts/"}]}}`; got != want {
			t.Errorf("submit is called for %s, want %s", got, want)
		}
		if to := tree(r.Properties.list("Targets")[0].(map[string]any)).text("Arn"); to != "<"+submit.id+".Arn>" {
			t.Errorf("new prompts call %s", to)
		}
	}
	if !called {
		t.Error("nobody is called for new prompts")
	}
}
