package convert

import (
	"bufio"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Limits of Parquet pages. The library reserves as much memory as a page's header asks for. Writers make pages of
// about a megabyte. A page of each column is in memory, besides the dictionaries.
const (
	maxPageBytes  = 512 << 20
	maxPageValues = 64 << 20
	maxPages      = 2 << 30 // bytes of the largest page and the dictionary of each column of a row group
)

// checkPages checks the sizes in the page headers of a column chunk, and returns how many bytes of its pages are in
// memory at once. Damaged headers pass: reading them fails later.
func checkPages(file io.ReaderAt, chunk format.ColumnMetaData) (largest int64, err error) {
	offset := chunk.DataPageOffset
	if chunk.DictionaryPageOffset != 0 {
		offset = chunk.DictionaryPageOffset
	}
	section := io.NewSectionReader(file, offset, chunk.TotalCompressedSize)
	var dictionary, page int64
	for next := int64(0); ; {
		h, begin, err := readPageHeader(section, next)
		if err != nil || h == nil {
			return dictionary + page, err
		}
		bytes := int64(max(h.UncompressedPageSize, h.CompressedPageSize))
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues, h.DictionaryPageHeader.V.NumValues)
		if bytes > maxPageBytes || values > maxPageValues {
			return 0, invalid("write the file again with smaller pages",
				"it has a page of %d bytes and %d values", bytes, values)
		}
		if h.Type == format.DictionaryPage {
			dictionary = max(dictionary, bytes)
		} else {
			page = max(page, bytes)
		}
		next = begin + int64(max(0, h.CompressedPageSize))
	}
}

// readPageHeader reads the header at an offset of a column chunk, and returns where its page begins. The header is nil
// at the end, and if it is damaged.
func readPageHeader(chunk *io.SectionReader, offset int64) (h *format.PageHeader, page int64, err error) {
	bytes := io.NewSectionReader(chunk, offset, maxPageHeader)
	if err := checkMetadata(bytes); err != nil {
		return nil, 0, err
	}
	if _, err := bytes.Seek(0, io.SeekStart); err != nil {
		return nil, 0, nil
	}
	buffered := bufio.NewReader(bytes)
	protocol := thrift.CompactProtocol{}
	h = &format.PageHeader{}
	if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(h); err != nil {
		return nil, 0, nil
	}
	read, err := bytes.Seek(0, io.SeekCurrent)
	return h, offset + read - int64(buffered.Buffered()), err
}
