package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/bits"
	"rollout/scripts/tinymodel/heldout"
)

func evaluateCommand() *cobra.Command {
	var in, documents string
	var threads int
	c := &cobra.Command{
		Use:   "evaluate",
		Short: "measure bits per byte on what was held out",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := readModel(in)
			if err != nil {
				return err
			}
			held, err := heldout.Documents()
			if documents != "" {
				held, err = readDocuments(documents)
			}
			if err != nil {
				return err
			}
			r, err := bits.Measure(c.Context(), b, held, threads)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%.4f bits per byte (%d documents, %d bytes, %d tokens)\n", r.PerByte(), len(held), r.Bytes, r.Tokens)
			return nil
		},
	}
	c.Flags().StringVar(&in, "model", "out/model/run/"+modelFile, "model to judge")
	c.Flags().StringVar(&documents, "documents", "", "documents to judge by (default: the held-out ones that come with the source)")
	c.Flags().IntVar(&threads, "threads", runtime.GOMAXPROCS(0), "threads")
	return c
}

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
			fmt.Fprintf(c.OutOrStdout(), "%s: %d parameters as %s, %d bytes, digest %s\n", out, b.Model.Config().Parameters(), encoding, len(packed), again.Digest)
			return os.WriteFile(out, packed, 0o644)
		},
	}
	c.Flags().StringVar(&in, "model", "out/model/run/"+modelFile, "model to pack")
	c.Flags().StringVar(&out, "out", "out/model/tiny.safetensors", "file to write")
	c.Flags().StringVar(&encoding, "encoding", string(weights.I8), "of the matrices: F32, BF16 or I8")
	return c
}

func readModel(name string) (*weights.Bundle, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the model: %w", err)
	}
	bundle, err := weights.Load(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return bundle, nil
}
