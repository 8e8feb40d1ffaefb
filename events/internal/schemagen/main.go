// Command schemagen writes the JSON Schemas of rollout's events:
//
//	schemagen <folder>
//
// Run it in the folder of package events, with go generate: the comments there
// become the descriptions in the schemas. No released program imports it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schemagen <folder>")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	files, err := schemas("rollout/events", ".")
	if err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
