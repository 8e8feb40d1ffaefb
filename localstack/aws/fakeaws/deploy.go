package fakeaws

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"rollout/localstack/aws/provision"
	"rollout/shared/aws"
	"rollout/shared/cloud"
	"rollout/shared/config"
)

// Deployed is a deployment in its own account.
type Deployed struct {
	*Cloud
	// Stack uses the emulator directly: its requests are neither counted nor
	// disturbed.
	Stack *aws.Stack

	end func()
}

// Deploy starts the emulator kumo and an account in front of it, and creates the
// stack of the config in the options, with a group of machines for each pool. The
// functions and the machines run the programs. The caller must call Close.
func Deploy(ctx context.Context, p Programs, o Options) (*Deployed, error) {
	d, err := config.ParseDeployment("rollout.toml", []byte(o.Config))
	if err != nil {
		return nil, err
	}
	address, end, err := StartKumo()
	if err != nil {
		return nil, fmt.Errorf("start the emulator: %w", err)
	}
	out := &Deployed{end: end}
	o.Backend, o.Programs = address, p.Functions()
	if out.Stack, err = OpenInstallation(ctx, d, address, "000000000000"); err == nil {
		err = provision.Create(ctx, out.Stack.AWS, d)
	}
	if err == nil {
		out.Cloud, err = Open(o)
	}
	if err != nil {
		end()
		return nil, err
	}
	for _, pool := range d.Pools {
		out.Groups.Make(d.Cloud.FleetName(pool.Name), d.Cloud.Fleet.MaxMachines, func(in *Instance) *exec.Cmd {
			cmd := exec.Command(p.Path("gpuworker"), "--cloud", config.ProviderAWS, "--pool", pool.Name)
			cmd.Env = append(in.Environment(), "PATH="+os.Getenv("PATH"), "HOME=/nonexistent")
			return cmd
		})
	}
	out.Start()
	return out, nil
}

// Close ends the deployment and its account.
func (d *Deployed) Close() {
	d.Cloud.Close()
	d.end()
}

// OpenInstallation opens a deployment at an emulator's address. caller is the access
// key; the environment's credentials are not used.
func OpenInstallation(ctx context.Context, d config.Deployment, address, caller string) (*aws.Stack, error) {
	return aws.OpenStack(ctx, d, aws.StackOptions{Options: cloud.Options{Source: caller},
		SDK: []func(*awsconfig.LoadOptions) error{
			awsconfig.WithBaseEndpoint(address), awsconfig.WithSharedConfigFiles(nil),
			awsconfig.WithSharedCredentialsFiles(nil), awsconfig.WithRetryMaxAttempts(10),
			awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(caller, "none", ""))}})
}
