package openai

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// filePrefix begins the id of a file, and batchPrefix that of a batch.
const (
	filePrefix  = record.FileIDPrefix
	batchPrefix = "batch_"
)

// part is a file of a run.
type part string

const (
	partInput  part = "input"
	partOutput part = "output"
	partErrors part = "error"
)

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

var crockford = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// newFileID returns the id of a file that is uploaded at a time. Later ones sort first; of
// those of one millisecond, the order is open.
func newFileID(at time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], ^uint64(max(0, at.UnixMilli()))<<16)
	rand.Read(b[6:])
	return filePrefix + crockford.EncodeToString(b[:])
}

// isUploadID reports whether the id may be that of an uploaded file: ids become parts of keys.
func isUploadID(id string) bool {
	rest, ok := strings.CutPrefix(id, filePrefix)
	return ok && len(id) == record.FileIDLength &&
		!strings.ContainsFunc(rest, func(r rune) bool { return !strings.ContainsRune(alphabet, r) })
}

// runFileID returns the id of a file of a run.
func runFileID(run identity.RunID, p part) string { return filePrefix + string(run) + "-" + string(p) }

// parseRunFileID returns the run and which of its files the id names.
func parseRunFileID(id string) (identity.RunID, part, bool) {
	run, name, ok := strings.Cut(strings.TrimPrefix(id, filePrefix), "-")
	p := part(name)
	ok = ok && strings.HasPrefix(id, filePrefix) && identity.RunID(run).Valid() &&
		(p == partInput || p == partOutput || p == partErrors)
	return identity.RunID(run), p, ok
}

// batchID returns the id of the batch that the run is.
func batchID(run identity.RunID) string { return batchPrefix + string(run) }

// parseBatchID returns the run of a batch, or NotFound.
func parseBatchID(id string) (identity.RunID, error) {
	run, ok := strings.CutPrefix(id, batchPrefix)
	if !ok || !identity.RunID(run).Valid() {
		return "", fault.New(fault.NotFound, "no batch found with id %.80q", id)
	}
	return identity.RunID(run), nil
}
