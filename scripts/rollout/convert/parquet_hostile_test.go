package convert_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"rollout/scripts/rollout/convert"
	"rollout/shared/fault"
)

// withFooter returns a Parquet file of the given data and footer.
func withFooter(data, footer string) string {
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(footer)))
	return "PAR1" + data + footer + string(length) + "PAR1"
}

// marshal encodes a structure of a Parquet file.
func marshal(t *testing.T, v any) string {
	t.Helper()
	protocol := thrift.CompactProtocol{}
	b, err := thrift.Marshal(&protocol, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// schema describes required columns of text.
func schema(columns int) thrift.Slice[format.SchemaElement] {
	elements := thrift.Slice[format.SchemaElement]{{Name: "records",
		NumChildren: thrift.New(int32(columns))}}
	for i := range columns {
		elements = append(elements, format.SchemaElement{
			Name:           strings.Repeat("c", i+1),
			Type:           thrift.New(format.ByteArray),
			RepetitionType: thrift.New(format.Required),
			ConvertedType:  thrift.New(deprecated.UTF8),
		})
	}
	return elements
}

// withPage returns a file whose columns all have one row in the given page.
func withPage(t *testing.T, columns int, page string) string {
	t.Helper()
	m := format.FileMetaData{Version: 1, Schema: schema(columns), NumRows: 1}
	group := format.RowGroup{NumRows: 1}
	for i := range columns {
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: format.ColumnMetaData{
			Type: format.ByteArray, PathInSchema: thrift.Slice[string]{m.Schema[i+1].Name}, NumValues: 1,
			Encoding: thrift.Slice[format.Encoding]{format.Plain}, DataPageOffset: 4,
			TotalCompressedSize: int64(len(page))}})
	}
	m.RowGroups = append(m.RowGroups, group)
	return withFooter(page, marshal(t, &m))
}

// pageHeader returns the header of a page that says that it has so many bytes and values.
func pageHeader(t *testing.T, size, values int32) string {
	t.Helper()
	return marshal(t, &format.PageHeader{Type: format.DataPage, UncompressedPageSize: size, CompressedPageSize: size,
		DataPageHeader: thrift.New(format.DataPageHeader{NumValues: values})})
}

// The library reserves what a file says that it needs, and what nests goes down its stack: both end the process.
func TestParquetThatNeedsTooMuchMemoryIsRefused(t *testing.T) {
	t.Parallel()
	const value = "\x01\x00\x00\x00x"
	version := "\x15\x02"
	listOf := func(n int, kind byte) string {
		return "\x19" + string(binary.AppendUvarint([]byte{0xF0 | kind}, uint64(n)))
	}
	nested := schema(1)[:1]
	for range 300 {
		nested = append(nested, format.SchemaElement{Name: "g", NumChildren: thrift.New(int32(1)),
			RepetitionType: thrift.New(format.Required)})
	}
	nested = append(nested, schema(1)[1])
	nested[0].NumChildren = thrift.New(int32(1))
	footerBeyond := strings.Replace(withFooter("", "0123"), "\x04\x00\x00\x00", "\xFF\xFF\xFF\x7F", 1)
	inOneAnother := withFooter("", marshal(t, &format.FileMetaData{Version: 1, Schema: nested}))
	groups := version + listOf(1<<18, 12) + strings.Repeat("\x48\x00\x00", 1<<18) + "\x00"
	for name, c := range map[string]struct{ file, want string }{
		"a list of billions":          {withFooter("", version+listOf(1<<31-1, 12)+"\x00"), "too many elements"},
		"a list of many numbers":      {withFooter("", version+listOf(1<<30, 5)+"\x00"), "too many elements"},
		"structures in one another":   {withFooter("", "\xFC"+strings.Repeat("\x1C", 8<<20)), "nested too deeply"},
		"a footer beyond the file":    {footerBeyond, "longer than the file"},
		"columns in one another":      {inOneAnother, "nested more than 255 deep"},
		"many groups":                 {withFooter("", groups), "262144 columns and groups"},
		"a large page":                {withPage(t, 1, pageHeader(t, 1<<30, 1)+value), "a page of 1073741824 bytes"},
		"a page of many values":       {withPage(t, 1, pageHeader(t, 5, 1<<30)+value), "1073741824 values"},
		"structures in a page header": {withPage(t, 1, "\xFC"+strings.Repeat("\x1C", 1<<20)), "nested too deeply"},
		"many large pages":            {withPage(t, 5, pageHeader(t, 500<<20, 1)+value), "choose some columns"},
	} {
		_, _, err := run(t, "a.parquet", c.file, "a.jsonl", convert.Options{})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	got, _, err := run(t, "a.parquet", withPage(t, 2, pageHeader(t, 5, 1)+value), "a.jsonl", convert.Options{})
	if want := `{"c":"x","cc":"x"}` + "\n"; err != nil || got != want {
		t.Errorf("a file as it should be has %q (%v), want %q", got, err, want)
	}
}
