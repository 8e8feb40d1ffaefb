package trials

// ReadTrial reads which trial an item is from its line. A line that is not that of a trial is
// Corrupt.
func ReadTrial(line []byte) (Trial, error) { return readTrial(line) }
