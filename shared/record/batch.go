package record

import (
	"regexp"
	"time"

	"rollout/shared/core/identity"
)

// Batch is the document batch/<run>: what the client of a batch API asked for. The API
// creates it, before submit makes the run, which adds what is wrong with a strict one.
type Batch struct {
	Schema  int            `json:"schema"`
	Run     identity.RunID `json:"run"`
	Created time.Time      `json:"created"`
	// File is the id of the input file, FileName what its owner calls it, and Input its
	// object.
	File     string `json:"file"`
	FileName string `json:"file_name,omitempty"`
	Input    Input  `json:"input"`
	Endpoint string `json:"endpoint"`
	// Window is the completion window as the client wrote it, and Deadline how long it is.
	Window   string            `json:"window"`
	Deadline time.Duration     `json:"deadline"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Strict refuses the batch if a line is invalid; BadLines are the first such lines.
	Strict   bool      `json:"strict,omitempty"`
	BadLines []BadLine `json:"bad_lines,omitempty"`
	// Request is the content id of the client's request, by which a repeated one is known.
	Request string `json:"request"`
}

// BadLine is an invalid line of a strict batch.
type BadLine struct {
	Line    uint64 `json:"line"` // from 1
	Message string `json:"message"`
}

// BatchPrefix is the prefix of the documents of batches.
const BatchPrefix = "batch/"

// BatchKey returns the key of the document of a batch.
func BatchKey(r identity.RunID) string { return BatchPrefix + string(r) }

// CreatedPrefix is the prefix of the entries of all runs, the newest first.
const CreatedPrefix = "created/"

// CreatedKey returns the key of the entry of a run that was created at a time.
func CreatedKey(at time.Time, r identity.RunID) string { return NamedKey(CreatedPrefix, at, r) }

// File is the document file/<id>: a file that a client of the batch API has uploaded.
type File struct {
	Schema  int       `json:"schema"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Name    string    `json:"name"`
	Purpose string    `json:"purpose"`
	Input   Input     `json:"input"`
}

// FilePrefix is the prefix of the documents of files. Their ids sort the newest first.
const FilePrefix = "file/"

// FileKey returns the key of the document of a file.
func FileKey(id string) string { return FilePrefix + id }

// FilesPrefix is the prefix of the objects of files. They start nothing by themselves.
const FilesPrefix = "files/"

// FileIDPrefix begins the ids of files, and FileIDLength is how long the id of an uploaded one is.
const (
	FileIDPrefix = "file-"
	FileIDLength = len(FileIDPrefix) + 26
)

// objectOfFile is how uploads name the objects of files: of a file that is joined, a claim stands
// between its id and its form.
var objectOfFile = regexp.MustCompile(`^` + FilesPrefix + `(` + FileIDPrefix +
	`[0-9A-Z]{26})(\.[0-9a-f]{16})?\.jsonl(\.gz|\.zst)?$`)

// FileOfObject returns the id of the uploaded file that an object under FilesPrefix is made for. It
// returns false for objects that others put there, such as the config beside a file.
func FileOfObject(key string) (id string, ok bool) {
	m := objectOfFile.FindStringSubmatch(key)
	if m == nil {
		return "", false
	}
	return m[1], true
}
