package identity

import "golang.org/x/sys/cpu"

func havePairs() bool { return cpu.X86.HasAVX2 }

// compressPair compresses n ≥ 1 blocks of each of the pair's chunks.
//
//go:noescape
func compressPair(p *pair, n int)
