// Package machine implements the capacity port with the kernel and the drivers of the
// machine that the process runs on, and the secret port with its environment.
//
// The numbers of CPUs and bytes of memory come from /proc and the control group. GPUs
// come from NVML or nvidia-smi, which run in a separate process because a faulty driver
// can crash or hang its caller. Preemption notices come from a file. The package never
// uses the network.
package machine
