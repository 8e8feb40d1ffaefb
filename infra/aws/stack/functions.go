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

// limit is the timeout and memory of a function, with a description of what it
// does.
type limit struct {
	seconds     int
	megabytes   int // of memory; Lambda gives a whole processor at 1,769
	description string
}

// limits has the limit of each function by its name.
var limits = map[string]limit{
	submit:     {60, 256, "makes a run of a new prompts file"},
	plan:       {900, 1769, "cuts a run's prompts into shards"},
	coordinate: {60, 512, "decides on what happened, and sends work"},
	finalize:   {900, 1769, "puts a run's answers together"},
	reclaim:    {60, 256, "looks once a minute for what was lost"},
	interrupt:  {30, 128, "hears of machines that are or will be gone"},
	api:        {300, 256, "answers the API"}, // it joins the parts of large files
}

// functionNames lists the functions in the order in which they are added to the stack.
func (s Settings) functionNames() []string {
	names := []string{submit, plan, coordinate, finalize, reclaim, interrupt}
	if s.API {
		names = append(names, api)
	}
	return names
}

// functions adds the functions, each with a log group and a role. It returns
// NotFound if a program has not been built.
//
// The functions do not reserve concurrency: a new account has 10 concurrent
// executions, and AWS lets it reserve none of them. A function that could starve
// the others is limited at its source: coordinate by its queue's concurrency,
// the others by the amount of work.
func (b *builder) functions() (map[string]awslambda.Function, error) {
	made := map[string]awslambda.Function{}
	for _, name := range b.functionNames() {
		code := filepath.Join(b.FunctionsDir, name)
		if _, err := os.Stat(filepath.Join(code, "bootstrap")); err != nil {
			return nil, &fault.Error{
				Kind:   fault.NotFound,
				Op:     "find the function " + name,
				Err:    err,
				Remedy: "build the functions with make lambda",
			}
		}
		made[name] = b.function(name, code)
	}
	return made, nil
}

func (b *builder) function(name, code string) awslambda.Function {
	physical := b.cloud.FunctionName(name)
	group := awslogs.NewLogGroup(b.stack, jsii.String("Log-"+name), &awslogs.LogGroupProps{
		LogGroupName:  jsii.String("/aws/lambda/" + physical),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	grants := append(b.functionGrants(name), grant{
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
		Description:  jsii.String("rollout: " + l.description),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architecture,
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(&code, nil),
		Timeout:      seconds(l.seconds),
		MemorySize:   jsii.Number(l.megabytes),
		Environment:  &map[string]*string{"ROLLOUT_CONFIG": &b.Config},
		LogGroup:     group,
		Role:         b.role("Role-"+name, lambdaService, fmt.Sprintf("rollout: %s %s", physical, l.description), grants),
		// Lambda stops a chain of 16 invocations that one event caused. None of the
		// functions invokes itself without end; this bounds the costs of a bug.
		// Messages from workers and the timer begin new chains, and coordinate continues
		// the chain of each run's messages alone (see ContinueChain of shared/aws).
		RecursiveLoop: awslambda.RecursiveLoop_TERMINATE,
	})
}
