package stack

import (
	"slices"
	"strings"

	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// userPolicy is a managed policy for people who work with the installation. Its name and its
// description must stay as they are: CloudFormation makes a new policy for another description,
// and refuses to while the old one has the name.
type userPolicy struct {
	id, name, description string
	output, use           string // the output with its ARN, and what that is for
	grants                []grant
}

// userPolicies returns the managed policies: one to see runs and what is wrong with the
// installation, one to be attached beside it to submit and steer runs, and one to call the
// API alone. The first two together do not fit into one policy of IAM.
// `rollout cloud doctor` says what a policy does not let it see.
func (b *builder) userPolicies() []userPolicy {
	all := []userPolicy{
		{
			"Reader", "reader", "rollout: see runs, fetch their results, and see what is wrong",
			"ReaderPolicy", "Attach it to who may see runs and fetch their results",
			join(b.viewerGrants(), b.accountGrants(), b.troubleGrants()),
		},
		{
			"User", "user", "rollout: submit and steer runs, see them, fetch their results, and see what is wrong",
			"UserPolicy", "Attach it beside ReaderPolicy to who may submit and steer runs as well",
			join(b.operatorGrants(), b.trialGrants()),
		},
	}
	if b.API && !b.tokenOpensAPI() {
		all = append(all, userPolicy{
			"Caller", "api", "rollout: call the API",
			"ApiPolicy", "Attach it to who may call the API, and nothing else",
			b.callerGrants(),
		})
	}
	return all
}

// addUserPolicies adds the managed policies and outputs their ARNs.
func (b *builder) addUserPolicies() {
	for _, p := range b.userPolicies() {
		made := b.policy(p.id, p.name, p.description, p.grants)
		b.output(p.output, p.use, made.ManagedPolicyArn())
	}
}

// viewerGrants returns the statements that status, explain, results and bundle
// need.
func (b *builder) viewerGrants() []grant {
	read := []string{record.PromptsPrefix, record.FilesPrefix, record.WorkPrefix, record.RunsPrefix, record.ModelsPrefix}
	listed := []string{runs, open, ended, found, names, beats}
	if _, trains := b.Deployment.TrainPool(); trains { // snapshots are looked at and restored
		read, listed = append(read, contents), append(listed, snapshots, references)
	}
	return join(
		b.readObjects(read...),
		b.listObjects(record.PromptsPrefix, record.RunsPrefix, record.ModelsPrefix), // models: for `rollout model list`
		b.readOwner(),
		b.readVersioning(),
		b.readDocuments(),
		b.queryDocuments(listed...),
		b.measureAllQueues(),
	)
}

// operatorGrants returns the statements that submit, pause, resume, stop, promote, model cache
// and snapshot prune need in addition to viewerGrants.
func (b *builder) operatorGrants() []grant {
	written := []string{others}
	var prune []grant
	if _, trains := b.Deployment.TrainPool(); trains {
		written = append(written, references)
		prune = join(b.deleteObjects(contents), b.deleteDocuments(snapshots, references))
	}
	return join(
		b.putObjects(record.PromptsPrefix, record.RunsPrefix+"*/guidance/", record.ModelsPrefix),
		b.invokeFunctions(submit), // if the event of an uploaded file is late
		b.writeDocuments(written...),
		b.sendMessages(host.CoordinateQueue),
		prune,
	)
}

// accountGrants returns the statements with which the doctor looks at the account.
func (b *builder) accountGrants() []grant {
	const why = "The actions know no resources."
	all := []string{"*"}
	look := []string{}
	if b.Machines {
		look = append(look, "autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstanceTypeOfferings",
			"servicequotas:GetServiceQuota")
	}
	var parameters []string
	for _, name := range b.images() {
		switch owner := b.account; {
		case strings.HasPrefix(name, "ami-"):
			if !slices.Contains(look, "ec2:DescribeImages") {
				look = append(look, "ec2:DescribeImages")
			}
		default:
			if strings.HasPrefix(name, "/aws/") { // a public parameter belongs to no account
				owner = ""
			}
			parameters = append(parameters,
				strings.Join([]string{"arn", b.partition, "ssm", b.cloud.Region, owner, "parameter" + name}, ":"))
		}
	}
	if b.Bucket != Made {
		look = append(look, "events:ListRuleNamesByTarget")
	}
	grants := []grant{
		{id: "SeeNotifications", actions: []string{"s3:GetBucketNotification"}, resources: []string{b.bucketArn()}},
		{id: "SeeImages", actions: []string{"ssm:GetParameter"}, resources: parameters},
	}
	if len(look) > 0 {
		grants = append(grants, grant{id: "SeeTheAccount", actions: look, resources: all, why: why})
	}
	return grants
}

// images returns the names of the machine images of all pools with machines, each once.
func (b *builder) images() (names []string) {
	if !b.Machines {
		return nil
	}
	for _, p := range b.Deployment.Pools {
		if name := b.Deployment.ImageOf(p); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// troubleGrants returns the statements of the commands in the README's table of troubles.
func (b *builder) troubleGrants() []grant {
	grants := []grant{
		{
			id:      "ReadLogs",
			actions: []string{"logs:FilterLogEvents"},
			resources: []string{
				b.arn("logs", "log-group:/aws/lambda/"+b.cloud.FunctionName("*")),
				b.arn("logs", "log-group:"+b.machineLog()+":*"),
			},
			why: "A policy has room for some thousand characters; all functions that begin so are the installation's.",
		},
		{
			id:        "ReadDeadLetters",
			actions:   []string{"sqs:ReceiveMessage"},
			resources: b.queueArns(queue.DeadLetterQueue("*")),
			why:       "Each queue has dead letters, and each pool has two queues; all that begin so are the installation's.",
		},
		{
			id:        "SeeTheDashboard",
			actions:   []string{"cloudwatch:GetDashboard"},
			resources: []string{b.dashboardArn()},
		},
		{
			id:        "SeeMetrics",
			actions:   []string{"cloudwatch:GetMetricData"},
			resources: []string{"*"},
			why:       "The action knows no resources.",
		},
	}
	if !b.Machines {
		return grants
	}
	return append(grants, grant{
		id:        "SeeLaunches",
		actions:   []string{"autoscaling:DescribeScalingActivities"},
		resources: []string{"*"},
		why:       "The action knows no resources.",
	}, grant{
		id:         "ReadConsoles",
		actions:    []string{"ec2:GetConsoleOutput"},
		resources:  []string{b.arn("ec2", "instance/*")},
		conditions: map[string]any{"StringLike": map[string]any{"aws:ResourceTag/rollout": b.cloud.Name}},
		why:        "Machines are named when they start; the condition holds for the installation's alone.",
	})
}

// dashboardArn returns the ARN of the dashboard. Dashboards are in no region.
func (b *builder) dashboardArn() string {
	return strings.Join([]string{"arn", b.partition, "cloudwatch", "", b.account,
		"dashboard/" + b.cloud.Name}, ":")
}

// trialGrants returns the statements with which the doctor tries bucket and queue. It names
// its objects after itself, and has a queue of its own.
func (b *builder) trialGrants() []grant {
	objects := b.objectArns(record.PendingPrefix + "doctor-")
	own := b.queueArns(host.DoctorQueue)
	return []grant{
		{
			id: "TryObjects",
			actions: []string{"s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:GetObjectVersion",
				"s3:PutObject"},
			resources: objects,
			why:       "The doctor names its objects when it makes them.",
		},
		{
			id: "TryMessages",
			actions: []string{"sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage",
				"sqs:SendMessage"},
			resources: own,
		},
	}
}

// callerGrants returns the statements with which a caller's signed requests pass the API's
// URL. It needs both, and they allow calls by the URL only.
func (b *builder) callerGrants() []grant {
	function := []string{b.arn("lambda", "function:"+b.cloud.FunctionName(api))}
	return []grant{
		{
			id:         "CallTheURL",
			actions:    []string{"lambda:InvokeFunctionUrl"},
			resources:  function,
			conditions: map[string]any{"StringLike": map[string]any{"lambda:FunctionUrlAuthType": "AWS_IAM"}},
		},
		{
			id:         "CallByTheURL",
			actions:    []string{"lambda:InvokeFunction"},
			resources:  function,
			conditions: map[string]any{"Bool": map[string]any{"lambda:InvokedViaFunctionUrl": "true"}},
		},
	}
}
