package convert

import (
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"rollout/shared/jsonl"
)

// converter returns the function that appends a leaf's value, which is not null, as JSON:
//
//	numbers, booleans   as they are; a decimal with all of its digits
//	dates and times     text such as "2026-03-01", "12:00:00.5", "2026-03-01T12:00:00Z" (without Z if local)
//	text, UUIDs         text
//	JSON                its value
//	bytes of no type    text, if they are UTF-8
func (p *parquetReader) converter(c *parquet.Column) (func([]byte, parquet.Value) ([]byte, error), error) {
	switch t := logicalType(c).(type) {
	case *format.DecimalType:
		if t.Scale < 0 || t.Scale > maxScale || c.Type().Length() > maxDecimal {
			return nil, unsupported(c)
		}
		return func(dst []byte, v parquet.Value) ([]byte, error) { return appendDecimal(dst, v, int(t.Scale)) }, nil
	case *format.DateType:
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return appendTime(dst, time.Unix(int64(v.Int32())*secondsADay, 0), time.DateOnly), nil
		}, nil
	case *format.TimeType:
		return timeOfDay(t.Unit.Value.Duration()), nil
	case *format.TimestampType:
		return timestamp(t.Unit.Value.Duration(), t.IsAdjustedToUTC), nil
	case *format.UUIDType:
		return appendUUID, nil
	case *format.JsonType:
		return appendJSON, nil
	case *format.BsonType, *format.GeometryType, *format.GeographyType:
		return nil, unsupported(c)
	case *format.IntType:
		if !t.IsSigned {
			return appendUnsigned, nil
		}
	}
	switch c.Type().Kind() {
	case parquet.Boolean:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return strconv.AppendBool(dst, v.Boolean()), nil }, nil
	case parquet.Int32, parquet.Int64:
		return appendSigned, nil
	case parquet.Int96:
		return appendInt96, nil
	case parquet.Float, parquet.Double:
		return p.appendFloat, nil
	}
	return appendText, nil
}

const (
	secondsADay    = 24 * 60 * 60
	localTimestamp = "2006-01-02T15:04:05.999999999"
	epochJulianDay = 2440588 // of 1970-01-01
)

// timestamp converts counts of a unit since 1970.
func timestamp(unit time.Duration, utc bool) func([]byte, parquet.Value) ([]byte, error) {
	layout := localTimestamp
	if utc {
		layout += "Z"
	}
	perSecond := int64(time.Second / unit)
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		n := v.Int64()
		seconds := n / perSecond
		return appendTime(dst, time.Unix(seconds, (n-seconds*perSecond)*int64(unit)), layout), nil
	}
}

// timeOfDay converts counts of a unit since midnight.
func timeOfDay(unit time.Duration) func([]byte, parquet.Value) ([]byte, error) {
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		n := v.Int64()
		if v.Kind() == parquet.Int32 {
			n = int64(v.Int32())
		}
		return appendTime(dst, time.Unix(0, n*int64(unit)), "15:04:05.999999999"), nil
	}
}

// appendInt96 converts a timestamp of old writers: nanoseconds of the day, and the Julian day.
func appendInt96(dst []byte, v parquet.Value) ([]byte, error) {
	i := v.Int96()
	nanos, day := int64(i[1])<<32|int64(i[0]), int64(i[2])-epochJulianDay
	return appendTime(dst, time.Unix(day*secondsADay, nanos), localTimestamp), nil
}

func appendTime(dst []byte, t time.Time, layout string) []byte {
	return append(t.UTC().AppendFormat(append(dst, '"'), layout), '"')
}

func appendSigned(dst []byte, v parquet.Value) ([]byte, error) {
	if v.Kind() == parquet.Int32 {
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	}
	return strconv.AppendInt(dst, v.Int64(), 10), nil
}

func appendUnsigned(dst []byte, v parquet.Value) ([]byte, error) {
	if v.Kind() == parquet.Int32 {
		return strconv.AppendUint(dst, uint64(v.Uint32()), 10), nil
	}
	return strconv.AppendUint(dst, v.Uint64(), 10), nil
}

// appendFloat writes the shortest number that is read as the same float. NaN and infinities become null, and are
// counted.
func (p *parquetReader) appendFloat(dst []byte, v parquet.Value) ([]byte, error) {
	f, bits := 0.0, 64
	if v.Kind() == parquet.Float {
		f, bits = float64(v.Float()), 32
	} else {
		f = v.Double()
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		p.lost++
		return append(dst, "null"...), nil
	}
	text := strconv.FormatFloat(f, 'f', -1, bits)
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		text = strconv.FormatFloat(f, 'e', -1, bits)
	}
	if !strings.ContainsAny(text, ".e") {
		text += ".0" // stays a float when it is read again
	}
	return append(dst, text...), nil
}

// Limits of decimals. They bound the time that one takes.
const (
	maxScale   = 1 << 10
	maxDecimal = 1 << 10 // bytes
)

// appendDecimal writes all digits of a decimal with that many of them behind the point.
func appendDecimal(dst []byte, v parquet.Value, scale int) ([]byte, error) {
	n := new(big.Int)
	switch v.Kind() {
	case parquet.Int32:
		n.SetInt64(int64(v.Int32()))
	case parquet.Int64:
		n.SetInt64(v.Int64())
	default: // two's complement, big endian
		b := v.ByteArray()
		if len(b) > maxDecimal {
			return dst, invalid("leave the column out: choose the others with --columns", "a decimal of %d bytes", len(b))
		}
		if n.SetBytes(b); len(b) > 0 && b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
	}
	if n.Sign() < 0 {
		dst = append(dst, '-')
	}
	digits := n.Abs(n).String()
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole := len(digits) - scale
	dst = append(dst, digits[:whole]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[whole:]...)
	}
	return dst, nil
}

func appendUUID(dst []byte, v parquet.Value) ([]byte, error) {
	b := v.ByteArray()
	if len(b) != 16 {
		return dst, invalid("it is damaged: write the file again", "a UUID of %d bytes", len(b))
	}
	dst = append(dst, '"')
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return append(dst, '"'), nil
}

func appendJSON(dst []byte, v parquet.Value) ([]byte, error) {
	b := v.ByteArray()
	if err := jsonl.Check(b); err != nil || !utf8.Valid(b) {
		return dst, invalid(
			"correct it, or leave the column out with --columns",
			"the value of type JSON is not valid JSON",
		)
	}
	return jsonl.Compact(dst, b), nil
}

func appendText(dst []byte, v parquet.Value) ([]byte, error) {
	b := v.ByteArray()
	if !utf8.Valid(b) {
		return dst, invalid(
			"leave the column out: choose the others with --columns",
			"the value is not text in UTF-8",
		)
	}
	return jsonl.AppendString(dst, string(b)), nil
}
