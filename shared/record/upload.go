package record

import "time"

// Upload is the document upload/<id>: a file that a client of the batch API uploads in parts,
// which are objects under UploadPartsPrefix.
type Upload struct {
	Schema  int       `json:"schema"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"` // no part is taken after it
	Status  string    `json:"status"`  // pending, completed, cancelled or expired
	Bytes   int64     `json:"bytes"`   // of the file, as the client says
	// Joining names the parts and the sum of the completion that joins them, or has joined them,
	// into the object of File; no other one may. "" before the first, and after one that failed.
	Joining string `json:"joining,omitempty"`
	// File is the file that it becomes; its Input has no version before it is completed.
	File File `json:"file"`
}

// How long after its creation an upload takes parts, and is known. Later a request for it is
// refused, so that what it has left can be deleted: see OrphanSweep.
const (
	UploadLasts = time.Hour
	UploadKept  = 24 * time.Hour
)

// UploadPrefix is the prefix of the documents of uploads.
const UploadPrefix = "upload/"

// UploadKey returns the key of the document of an upload.
func UploadKey(id string) string { return UploadPrefix + id }

// UploadPartsPrefix is the prefix of the objects of uploads' parts, UPLOAD/PART.
const UploadPartsPrefix = PendingPrefix + "parts/"

// UploadPartKey returns the key of a part of an upload.
func UploadPartKey(upload, part string) string { return UploadPartsPrefix + upload + "/" + part }

// OrphanSweep is the document uploads/orphans: when reclaim last looked for what uploads have left
// behind, and the keys behind which it goes on; "" from the start.
type OrphanSweep struct {
	Schema int       `json:"schema"`
	At     time.Time `json:"at"`
	// Since is when these documents began, or were restored from a backup. An older object may be
	// that of a file which they have forgotten, and stays.
	Since   time.Time `json:"since"`
	Parts   string    `json:"parts,omitempty"`
	Files   string    `json:"files,omitempty"`
	Uploads string    `json:"uploads,omitempty"`
	Expired string    `json:"expired,omitempty"` // of the documents of files
}

// OrphanSweepKey is the key of the OrphanSweep. Only reclaim writes it.
const OrphanSweepKey = "uploads/orphans"
