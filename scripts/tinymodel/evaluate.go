package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/heldout"
)

func evaluateCommand() *cobra.Command {
	var in, documents string
	var threads int
	c := &cobra.Command{
		Use:   "evaluate",
		Short: "measure bits per byte on held-out documents",
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
			r, err := measureBits(c.Context(), b, held, threads)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%.4f bits per byte (%d documents, %d bytes, %d tokens)\n",
				r.perByte(), len(held), r.bytes, r.tokens)
			return nil
		},
	}
	c.Flags().StringVar(&in, "model", "out/model/run/"+modelFile, "model to evaluate")
	c.Flags().StringVar(&documents, "documents", "",
		"file of documents to evaluate on (default: the held-out documents of the source)")
	c.Flags().IntVar(&threads, "threads", runtime.GOMAXPROCS(0), "number of threads")
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
