package modelcache

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rollout/gpuworker/machine"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/hub"
	"rollout/shared/models"
)

// Bucket is the installation's bucket.
type Bucket struct {
	Blobs blob.Store
	URL   func(key string) string // of an object; see cloud.Installation
}

// Opener opens the bucket of a deployment.
type Opener func(ctx context.Context, d config.Deployment) (Bucket, error)

// Commands returns the commands "fetch-model" and "store-model", for machine.Command.
func Commands(open Opener) []*cobra.Command {
	add := func(use, short string, run func(m Machine, ctx context.Context) error) *cobra.Command {
		var hubFolder string
		c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				m, err := newMachine(c, open)
				if err != nil {
					return err
				}
				m.HubFolder = hubFolder
				return run(m, c.Context())
			}}
		c.Flags().StringVar(&hubFolder, "hub-cache", "", "the `folder` where the server looks for models of the hub "+
			"(default: the one that its unit mounts)")
		return c
	}
	return []*cobra.Command{
		add("fetch-model", "Fetch the pool's model from the installation's bucket, if it is there", Machine.Fetch),
		add("store-model", "Store the model that the server fetched from the hub in the bucket", Machine.Store),
	}
}

// newMachine returns the machine that the flags of package machine describe.
func newMachine(c *cobra.Command, open Opener) (Machine, error) {
	d, p, err := machine.ReadPool(c)
	if err != nil {
		return Machine{}, err
	}
	bucket, err := open(c.Context(), d)
	if err != nil {
		return Machine{}, err
	}
	root := machine.Root()
	of := d.MachinesOf(p)
	return Machine{
		Pool: p, Machines: of, Bucket: bucket.URL(""), Root: root, Cache: models.Cache{Blobs: bucket.Blobs},
		Hub: hub.FromEnvironment(func(name string) string {
			if name == "HF_TOKEN" {
				return cmp.Or(hubToken(root), os.Getenv(name)) // a task has it as a variable
			}
			if v := of.EngineEnv[name]; v != "" { // a mirror of the hub
				return v
			}
			return os.Getenv(name)
		}),
		Out: c.ErrOrStderr(), Now: time.Now,
	}, nil
}
