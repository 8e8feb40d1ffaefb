package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/weights"
)

func packCommand() *cobra.Command {
	var in, out, encoding string
	c := &cobra.Command{
		Use:   "pack",
		Short: "quantise a model into one file to embed",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := readModel(in)
			if err != nil {
				return err
			}
			packed, err := weights.Pack(modelName, b.Model, b.Tokenizer, weights.Encoding(encoding))
			if err != nil {
				return err
			}
			again, err := weights.Load(packed)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d parameters as %s, %d bytes, digest %s\n",
				out, b.Model.Config().Parameters(), encoding, len(packed), again.Digest)
			return os.WriteFile(out, packed, 0o644)
		},
	}
	c.Flags().StringVar(&in, "model", "out/model/run/"+modelFile, "model to pack")
	c.Flags().StringVar(&out, "out", "out/model/tiny.safetensors", "file to write")
	c.Flags().StringVar(&encoding, "encoding", string(weights.I8), "encoding of the matrices: F32, BF16 or I8")
	return c
}
