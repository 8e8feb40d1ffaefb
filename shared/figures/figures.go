// Package figures formats numbers for people: counts, numbers of things, rates, shares and durations. Every screen and
// every sentence uses it, so that a number looks the same wherever it stands.
//
// Its functions are pure. They never return "-0": a value that rounds to zero has no sign.
package figures

import (
	"math"
	"strconv"
	"time"
)

// Integer is a type of whole numbers.
type Integer interface {
	~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64
}

// Count formats a count with separators: "1,234".
func Count[N Integer](n N) string {
	digits, sign := strconv.FormatUint(uint64(n), 10), ""
	if n < 0 {
		digits, sign = strconv.FormatUint(-uint64(int64(n)), 10), "-"
	}
	out := []byte(sign)
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out = append(out, ',')
		}
		out = append(out, digits[i])
	}
	return string(out)
}

// Of formats a number of things by the name of one: "1 shard", "0 shards", "1,234 items". The plural is the name and an
// s; see OfMany for others.
func Of[N Integer](n N, one string) string { return OfMany(n, one, one+"s") }

// OfMany is Of with the plural: "1 item is", "2 items are".
func OfMany[N Integer](n N, one, many string) string { return Count(n) + " " + Plural(n, one, many) }

// Plural returns one if n is 1, and many otherwise.
func Plural[N Integer](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Whole formats a number rounded to a whole one: "1,235".
func Whole(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "-"
	}
	return Count(int64(math.Round(max(-maxWhole, min(maxWhole, x)))))
}

// maxWhole is the largest number that Whole writes in digits.
const maxWhole = 1 << 62

// Short formats a number with two or three digits: "0.45", "12.5", "1,235".
func Short(x float64) string {
	switch a := math.Abs(x); {
	case !(a < 99.95): // also NaN
		return Whole(x)
	case a >= 0.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a < 1e-9:
		return "0"
	}
	return twoDigits(x)
}

// twoDigits formats a number with two digits, and without an exponent also if it is very small.
func twoDigits(x float64) string {
	digits := strconv.FormatFloat(x, 'g', 2, 64)
	if value, err := strconv.ParseFloat(digits, 64); err == nil {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return digits
}

// Dollars formats dollars: "$0.0042", "$12.30", "$1,235".
func Dollars(x float64) string {
	switch {
	case !(x < 999.995): // also NaN
		return "$" + Whole(x)
	case x >= 0.0995:
		return "$" + strconv.FormatFloat(x, 'f', 2, 64)
	case x < 1e-9: // a budget counts millionths, and the bill billionths
		return "$0.00"
	}
	return "$" + twoDigits(x)
}

// Share formats a share of 0 to 1, rounded: "98%".
func Share(x float64) string { return Whole(100*x) + "%" }

// Percent formats a part of all, rounded down so that "100%" means all. It returns "-" if all is 0.
func Percent(part, all uint64) string {
	if all == 0 {
		return "-"
	}
	return Count(int(math.Floor(100*float64(min(part, all))/float64(all)))) + "%"
}

// Duration formats a duration with at most two units: "850ms", "42s", "3m05s", "2h10m", "3d04h". A negative one is
// "0s".
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return Count(s) + "s"
	case s < 3600:
		return Count(s/60) + "m" + padded(s%60) + "s"
	case s < 24*3600:
		return Count(s/3600) + "h" + padded(s%3600/60) + "m"
	}
	return Count(s/(24*3600)) + "d" + padded(s%(24*3600)/3600) + "h"
}

func padded(n int64) string {
	if n < 10 {
		return "0" + Count(n)
	}
	return Count(n)
}

// Elapsed formats a duration like Duration, with tenths of a second below ten seconds: "0.3s", "42s".
func Elapsed(d time.Duration) string {
	if tenths := max(0, d).Round(100 * time.Millisecond); tenths < 10*time.Second {
		return strconv.FormatFloat(tenths.Seconds(), 'f', 1, 64) + "s"
	}
	return Duration(d)
}
