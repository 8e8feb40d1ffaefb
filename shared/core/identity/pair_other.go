//go:build !amd64

package identity

func havePairs() bool { return false }

func compressPair(*pair, int) { panic("identity: there is no assembly for this processor") }
