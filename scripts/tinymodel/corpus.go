package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/scripts/tinymodel/corpus"
)

// The files of a folder with a corpus.
const (
	learnFile     = "learn.jsonl"
	heldOutFile   = "heldout.jsonl.gz"
	tokenizerFile = "tokenizer.txt"
)

func corpusCommand() *cobra.Command {
	var bible, opticks, out string
	c := &cobra.Command{
		Use:   "corpus --opticks FILE [flags]",
		Short: "make documents to learn from, and some to judge by",
		Long: `corpus reads the King James Bible out of the data file of Debian's package
bible-kjv-text, and Newton's Opticks as Go's source tree has it
($(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt), and writes
` + learnFile + ` and ` + heldOutFile + `. (make model-corpus fetches the package.)`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return makeCorpus(c.OutOrStdout(), bible, opticks, out) },
	}
	c.Flags().StringVar(&bible, "bible", "/usr/lib/bible.data", "data file of bible-kjv-text")
	c.Flags().StringVar(&opticks, "opticks", "", "text of the Opticks")
	c.Flags().StringVar(&out, "out", "out/model", "folder to write to")
	_ = c.MarkFlagRequired("opticks")
	return c
}

func makeCorpus(log io.Writer, bible, opticks, out string) error {
	b, err := os.ReadFile(bible)
	if err != nil {
		return fmt.Errorf("read the Bible: %w (install bible-kjv-text, or name its bible.data with --bible)", err)
	}
	verses, err := corpus.KJV(b)
	if err != nil {
		return fmt.Errorf("%s: %w", bible, err)
	}
	text, err := os.ReadFile(opticks)
	if err != nil {
		return fmt.Errorf("read the Opticks: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	learn, heldOut := corpus.Build(verses, corpus.Opticks(string(text)))
	for name, documents := range map[string][]corpus.Document{learnFile: learn, heldOutFile: heldOut} {
		var b bytes.Buffer
		if err := corpus.Write(&b, documents); err != nil {
			return err
		}
		sum := blake3.Sum256(b.Bytes())
		fmt.Fprintf(log, "%s: %d documents, %d bytes, blake3 %s\n", name, len(documents), b.Len(), hex.EncodeToString(sum[:]))
		if err := writeFile(filepath.Join(out, name), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file, compressed if its name says so.
func writeFile(name string, b []byte) error {
	if filepath.Ext(name) != ".gz" {
		return os.WriteFile(name, b, 0o644)
	}
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(name, z.Bytes(), 0o644)
}

func tokenizerCommand() *cobra.Command {
	var in, out string
	var vocab int
	c := &cobra.Command{
		Use:   "tokenizer",
		Short: "learn a vocabulary from the documents",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			documents, err := readDocuments(in)
			if err != nil {
				return err
			}
			t, err := tokenizer.Train(func(yield func(string) bool) {
				for _, d := range documents {
					if d.Text != "" && !yield(d.Text) { // chats repeat texts
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
	c.Flags().StringVar(&in, "corpus", "out/model/"+learnFile, "documents to learn from")
	c.Flags().StringVar(&out, "out", "out/model/"+tokenizerFile, "file to write")
	c.Flags().IntVar(&vocab, "vocab", defaultVocab, "number of tokens")
	return c
}

// readDocuments reads a corpus, which may be compressed.
func readDocuments(name string) ([]corpus.Document, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the documents: %w (`make model-corpus` makes them)", err)
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if filepath.Ext(name) == ".gz" {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	documents, err := corpus.Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return documents, nil
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
