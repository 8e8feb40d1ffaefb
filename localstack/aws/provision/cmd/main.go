// Command provision creates the resources of a stack in an emulator of AWS, whose
// address is in AWS_ENDPOINT_URL.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"rollout/localstack/aws/provision"
	"rollout/shared/aws"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "provision:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("provision", flag.ContinueOnError)
	f.SetOutput(stderr)
	path := f.String("config", "rollout.toml", "config `file` of the deployment, with a table [cloud]")
	if err := f.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return fmt.Errorf("read the config: %w (name its file with --config)", err)
	}
	d, err := provision.ReadConfig(*path, text)
	if err != nil {
		return err
	}
	cfg, err := aws.LoadConfig(ctx, slog.New(slog.DiscardHandler), awsconfig.WithRegion(d.Cloud.Region))
	if err != nil {
		return err
	}
	if err := provision.Create(ctx, cfg, d); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "the emulator has the bucket %s, the table %s and the queues %s*\n", d.Cloud.S3.Bucket,
		d.Cloud.DynamoDB.Table, d.Cloud.SQS.Prefix)
	return nil
}
