package blake3pair

import "golang.org/x/sys/cpu"

func hasAVX2() bool { return cpu.X86.HasAVX2 }

// compressPair compresses n ≥ 1 blocks of each of the pair's nodes.
//
//go:noescape
func compressPair(p *pair, n int)
