package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/spf13/cobra"
)

// loopCommand is the baseline: a plain program that posts the prompts of a file.
func loopCommand() *cobra.Command {
	var url, file string
	var inFlight int
	c := &cobra.Command{Use: "loop", Short: "Post the prompts of a file and read the answers", Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return loop(c.Context(), url, file, inFlight) }}
	c.Flags().StringVar(&url, "url", "", "`URL` of the server")
	c.Flags().StringVar(&file, "file", "", "`file` of prompts")
	c.Flags().IntVar(&inFlight, "in-flight", 64, "`number` of requests at once")
	return c
}

// loop posts each prompt of the file.
func loop(ctx context.Context, url, file string, inFlight int) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}}
	prompts := make(chan string, inFlight)
	failed := make(chan error, inFlight)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for p := range prompts {
				if err := post(ctx, client, url+"/v1/completions", p); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	for lines.Scan() {
		var line struct{ Prompt string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		select {
		case prompts <- line.Prompt:
		case err := <-failed:
			return err
		}
	}
	close(prompts)
	workers.Wait()
	return lines.Err()
}

// post sends one request and reads the answer.
func post(ctx context.Context, c *http.Client, url, prompt string) error {
	body, err := json.Marshal(map[string]any{"model": "fake", "prompt": prompt, "stream": true,
		"stream_options": map[string]any{"include_usage": true}})
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
