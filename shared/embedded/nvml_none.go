//go:build !(cgo && nvml)

package embedded

// hasNVML: this binary can't ask NVML.
const hasNVML = false

// queryNVML tells of no GPU.
func queryNVML(tell func(known []gpuReport) error) error { return tell([]gpuReport{}) }
