package blob

// Upload is an object that appeared in a watched bucket.
type Upload struct {
	Info
	Found Found
}

// Found says in which way an object appeared, if it may be one that was there before.
type Found string

// The ways. An object of either may have the bytes of an earlier one under a new version.
const (
	Written  Found = ""         // while the bucket was watched
	Kept     Found = "kept"     // it was there when the watch began
	Returned Found = "returned" // while the bucket was watched; its key had an object before, and then none
)
