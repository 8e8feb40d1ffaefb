// Package machine drives the capacity port with the kernel and the drivers of
// the machine that the process runs on, and the secret port with its
// environment.
//
// Processors and memory come from /proc and the control group, GPUs from NVML or
// nvidia-smi, which run in a process of their own because a faulty driver can
// crash or hang its caller. A file stands for a preemption notice. The package
// never reaches the network.
package machine
