package bucket

// DisableUnnamedFiles makes the bucket write all new objects under temporary names, as
// on file systems without unnamed files.
func (b *Bucket) DisableUnnamedFiles() { b.unnamed = false }
