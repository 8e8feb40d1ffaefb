package bucket

// NameAllFiles lets the bucket write all new objects under temporary names, as
// it does on file systems that know no files without one.
func (b *Bucket) NameAllFiles() { b.nameless = false }
