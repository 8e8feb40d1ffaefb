package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rollout/gpuworker/tinylm/tokenizer"
)

func tokenizerCommand() *cobra.Command {
	var in, out string
	var vocab int
	c := &cobra.Command{
		Use:   "tokenizer",
		Short: "learn a vocabulary from the training documents",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			documents, err := readDocuments(in)
			if err != nil {
				return err
			}
			t, err := tokenizer.Train(func(yield func(string) bool) {
				for _, d := range documents {
					if d.Text != "" && !yield(d.Text) { // skip chats, which repeat texts
						return
					}
				}
			}, vocab)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), t)
			return os.WriteFile(out, t.Bytes(), 0o644)
		},
	}
	c.Flags().StringVar(&in, "corpus", "out/model/"+learnFile, "file of training documents")
	c.Flags().StringVar(&out, "out", "out/model/"+tokenizerFile, "file to write")
	c.Flags().IntVar(&vocab, "vocab", defaultVocab, "number of tokens")
	return c
}

func readTokenizer(name string) (*tokenizer.Tokenizer, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the tokenizer: %w (`tinymodel tokenizer` makes it)", err)
	}
	t, err := tokenizer.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
