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

	"rollout/scripts/tinymodel/corpus"
)

// The files of a corpus folder.
const (
	learnFile     = "learn.jsonl"      // training documents
	heldOutFile   = "heldout.jsonl.gz" // held-out documents
	tokenizerFile = "tokenizer.txt"
)

func corpusCommand() *cobra.Command {
	var bible, opticks, out string
	c := &cobra.Command{
		Use:   "corpus --opticks FILE [flags]",
		Short: "make training documents and held-out documents",
		Long: `corpus reads the King James Bible from the data file of Debian's package
bible-kjv-text, and Newton's Opticks from Go's source tree
($(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt). It writes the training
documents to ` + learnFile + ` and the held-out documents to ` + heldOutFile + `.
(make model-corpus downloads the package.)`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return makeCorpus(c.OutOrStdout(), bible, opticks, out) },
	}
	c.Flags().StringVar(&bible, "bible", "/usr/lib/bible.data", "data file of bible-kjv-text")
	c.Flags().StringVar(&opticks, "opticks", "", "text of the Opticks")
	c.Flags().StringVar(&out, "out", "out/model", "folder to write to")
	_ = c.MarkFlagRequired("opticks")
	return c
}

// makeCorpus writes the corpus to the folder out.
func makeCorpus(log io.Writer, bible, opticks, out string) error {
	b, err := os.ReadFile(bible)
	if err != nil {
		return fmt.Errorf("read the Bible: %w (install bible-kjv-text, or set --bible to its bible.data)", err)
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
		fmt.Fprintf(log, "%s: %d documents, %d bytes, blake3 %s\n",
			name, len(documents), b.Len(), hex.EncodeToString(sum[:]))
		if err := writeFile(filepath.Join(out, name), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file, compressed if its name ends with .gz.
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

// readDocuments reads the documents of a corpus file, which is compressed if its
// name ends with .gz.
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
