package machine

import "io/fs"

// totalMemory returns the machine's memory in bytes.
func totalMemory(files fs.FS) (uint64, error) { return meminfoTotal(files) }
