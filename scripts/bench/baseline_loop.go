package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/spf13/cobra"
)

// loopOptions are the options of loop.
type loopOptions struct {
	url      string // of the endpoint
	file     string // of prompts or chats
	model    string
	inFlight int
	whole    bool // ask for whole answers instead of streams
}

// loopCommand is the baseline: a plain program that posts the prompts of a file.
func loopCommand() *cobra.Command {
	var o loopOptions
	c := &cobra.Command{Use: "loop", Short: "Post the prompts of a file and read the answers", Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return loop(c.Context(), o) }}
	c.Flags().StringVar(&o.url, "url", "", "`URL` of the endpoint")
	c.Flags().StringVar(&o.file, "file", "", "`file` of prompts or chats")
	c.Flags().StringVar(&o.model, "model", "fake", "`name` of the model")
	c.Flags().IntVar(&o.inFlight, "in-flight", 64, "`number` of requests at once")
	c.Flags().BoolVar(&o.whole, "whole", false, "ask for whole answers, not for streams")
	return c
}

// loopRequest is a line of the file and, with the members that the loop adds, the body
// of its request.
type loopRequest struct {
	Model         string          `json:"model"`
	Prompt        string          `json:"prompt,omitempty"`
	Messages      json.RawMessage `json:"messages,omitempty"`
	MaxTokens     int             `json:"max_tokens,omitempty"`
	IgnoreEOS     bool            `json:"ignore_eos,omitempty"`
	Seed          *int64          `json:"seed,omitempty"`
	Stream        bool            `json:"stream"`
	StreamOptions *streamOptions  `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// loop posts each line of the file.
func loop(ctx context.Context, o loopOptions) error {
	f, err := os.Open(o.file)
	if err != nil {
		return err
	}
	defer f.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.inFlight}}
	requests := make(chan loopRequest, o.inFlight)
	failed := make(chan error, o.inFlight)
	var workers sync.WaitGroup
	for range o.inFlight {
		workers.Go(func() {
			for r := range requests {
				if err := post(ctx, client, o.url, r); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	for lines.Scan() {
		r := loopRequest{Model: o.model, Stream: !o.whole}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		if r.Prompt != "" && r.MaxTokens == 0 {
			r.MaxTokens = 1024 // as the product asks
		}
		if r.Stream {
			r.StreamOptions = &streamOptions{IncludeUsage: true}
		}
		select {
		case requests <- r:
		case err := <-failed:
			return err
		}
	}
	close(requests)
	workers.Wait()
	close(failed)
	return errors.Join(lines.Err(), <-failed)
}

// post sends one request and reads the answer.
func post(ctx context.Context, c *http.Client, url string, r loopRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
