package stack

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/fault"
)

// limit is what a function may take, and what it is for.
type limit struct {
	seconds  int
	megabyte int // of memory; processors come with it, a whole one at 1,769
	what     string
}

var limits = map[string]limit{
	submit:     {60, 256, "makes a run of a new prompts file"},
	plan:       {900, 1769, "cuts a run's prompts into shards"},
	coordinate: {60, 512, "decides on what happened, and sends work"},
	finalize:   {900, 1769, "puts a run's answers together"},
	reclaim:    {60, 256, "looks once a minute for what was lost"},
	interrupt:  {30, 128, "hears of machines that are or will be gone"},
	api:        {30, 256, "answers the API"},
}

// order is in which the functions are made.
var order = []string{submit, plan, coordinate, finalize, reclaim, interrupt, api}

// functions makes the functions, and the log and the role of each.
//
// None reserves concurrency: a new account has 10 executions at once, of which
// none can be reserved. What could crowd the others out is bounded at its
// source: coordinate by its queue, the others by how much work there is.
func (b *builder) functions() (map[string]awslambda.Function, error) {
	made := map[string]awslambda.Function{}
	for _, name := range order {
		code := filepath.Join(b.FunctionsDir, name)
		if _, err := os.Stat(filepath.Join(code, "bootstrap")); err != nil {
			return nil, &fault.Error{Kind: fault.NotFound, Op: "find the function " + name, Err: err, Remedy: "make lambda builds the functions"}
		}
		made[name] = b.function(name, code)
	}
	return made, nil
}

func (b *builder) function(name, code string) awslambda.Function {
	physical := b.cloud.FunctionName(name)
	group := awslogs.NewLogGroup(b.stack, jsii.String("Log-"+name), &awslogs.LogGroupProps{
		LogGroupName: jsii.String("/aws/lambda/" + physical), Retention: awslogs.RetentionDays_ONE_MONTH, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	grants := append(b.grants(name), grant{
		id: "WriteLog", actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"},
		resources: []string{b.arn("logs", "log-group:/aws/lambda/"+physical+":log-stream:*")},
		why:       "Lambda names the streams of a function's log.",
	})
	architecture := awslambda.Architecture_ARM_64()
	if b.Arch == ArchX86 {
		architecture = awslambda.Architecture_X86_64()
	}
	l := limits[name]
	return awslambda.NewFunction(b.stack, jsii.String("Function-"+name), &awslambda.FunctionProps{
		FunctionName: &physical,
		Description:  jsii.String("rollout: " + l.what),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architecture,
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(&code, nil),
		Timeout:      seconds(l.seconds),
		MemorySize:   jsii.Number(l.megabyte),
		Environment:  &map[string]*string{"ROLLOUT_CONFIG": &b.Config},
		LogGroup:     group,
		Role:         b.role("Role-"+name, lambdaService, fmt.Sprintf("rollout: %s %s", physical, l.what), grants),
		// Lambda stops a chain of 16 calls that one event caused. No function of
		// ours calls in a circle; one that did, by mistake, would cost without
		// end. Workers and the timer begin new chains.
		RecursiveLoop: awslambda.RecursiveLoop_TERMINATE,
	})
}
