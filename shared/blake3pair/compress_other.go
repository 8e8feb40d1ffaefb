//go:build !amd64

package blake3pair

func hasAVX2() bool { return false }

func compressPair(*pair, int) { panic("blake3pair: this processor has no assembly: check Available") }
