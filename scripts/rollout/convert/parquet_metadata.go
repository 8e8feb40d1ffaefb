package convert

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"

	"rollout/shared/fault"
)

// Limits of a file's metadata: its footer and the headers of its pages. The library reserves memory for as many
// elements as a list says that it has, and one damaged byte can make them billions. The footer of a file with 3,000 row
// groups of 100 columns has about a million structures.
const (
	maxFooter     = 256 << 20 // bytes
	maxPageHeader = 16 << 20  // bytes
	maxStructures = 1 << 20
	maxElements   = 16 << 20 // that are not structures
	maxDepth      = 32       // of structures and lists in one another
	maxSchema     = 1 << 17  // columns and groups
)

// checkFooter checks the limits in the footer of a file of size bytes. What is damaged otherwise passes: the library
// refuses it.
func checkFooter(file io.ReaderAt, size int64) error {
	end := make([]byte, 8) // the footer's length, and what Parquet files end with
	if _, err := file.ReadAt(end, max(0, size-8)); err != nil {
		return damaged(err)
	}
	length := int64(binary.LittleEndian.Uint32(end))
	if length > size-8 {
		return damaged(errors.New("its footer is longer than the file"))
	}
	if length > maxFooter {
		return invalid("write the file again with larger row groups", "its footer has %d bytes", length)
	}
	footer := io.NewSectionReader(file, size-8-length, length)
	if err := checkMetadata(footer); err != nil {
		return err
	}
	return checkSchema(footer)
}

// checkSchema checks how large the schema in a footer is, and how deep: the library keeps the path of each column, and
// goes down by recursion.
func checkSchema(footer *io.SectionReader) error {
	var metadata struct {
		Schema []struct {
			Children int32 `thrift:"5,optional"`
		} `thrift:"2,required"`
	}
	protocol := thrift.CompactProtocol{}
	buffered := bufio.NewReader(io.NewSectionReader(footer, 0, footer.Size()))
	if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&metadata); err != nil {
		return damaged(err)
	}
	if len(metadata.Schema) > maxSchema {
		return invalid("write the file again with fewer columns", "it has %d columns and groups", len(metadata.Schema))
	}
	var open []int32 // by level, how many more children the group has
	for _, element := range metadata.Schema {
		for len(open) > 0 && open[len(open)-1] <= 0 {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			open[len(open)-1]--
		}
		if open = append(open, element.Children); len(open) > parquet.MaxColumnDepth {
			return invalid("write its values flatter", "its columns are nested more than %d deep", parquet.MaxColumnDepth)
		}
	}
	return nil
}

// checkMetadata checks the limits of one structure, which it reads from r.
func checkMetadata(r io.Reader) error {
	protocol := thrift.CompactProtocol{}
	w := metadataWalk{r: protocol.NewReader(bufio.NewReader(r))}
	err := w.walkStruct(0)
	if fault.Is(err, fault.Invalid) {
		return err
	}
	return nil // what is damaged otherwise is met again
}

// metadataWalk passes over the values of a structure, and counts them.
type metadataWalk struct {
	r                    thrift.Reader
	structures, elements int
}

// walk passes over a value. The type of a field that is true or false is its value.
func (w *metadataWalk) walk(t thrift.Type, depth int) (err error) {
	if depth > maxDepth {
		return damaged(errors.New("its metadata is nested too deeply"))
	}
	switch t {
	case thrift.TRUE, thrift.FALSE:
	case thrift.I8:
		_, err = w.r.ReadInt8()
	case thrift.I16, thrift.I32, thrift.I64: // of any length
		_, err = w.r.ReadInt64()
	case thrift.DOUBLE:
		_, err = w.r.ReadFloat64()
	case thrift.UUID:
		err = w.skip(16)
	case thrift.BINARY:
		var n int
		if n, err = w.r.ReadLength(); err == nil {
			err = w.skip(n)
		}
	case thrift.LIST, thrift.SET: // written alike
		var l thrift.List
		if l, err = w.r.ReadList(); err == nil {
			err = w.walkElements(int(l.Size), depth, l.Type)
		}
	case thrift.MAP:
		var m thrift.Map
		if m, err = w.r.ReadMap(); err == nil {
			err = w.walkElements(int(m.Size), depth, m.Key, m.Value)
		}
	case thrift.STRUCT:
		err = w.walkStruct(depth)
	default:
		err = errors.New("its metadata has a value of an unknown type")
	}
	return err
}

// skip passes over n bytes.
func (w *metadataWalk) skip(n int) error {
	_, err := io.CopyN(io.Discard, w.r.Reader(), int64(n))
	return err
}

func (w *metadataWalk) walkStruct(depth int) error {
	for {
		f, err := w.r.ReadField()
		if err != nil || f.Type == thrift.STOP {
			return err
		}
		if err := w.walk(f.Type, depth+1); err != nil {
			return err
		}
	}
}

// walkElements passes over n elements, each of which has a value of each type.
func (w *metadataWalk) walkElements(n, depth int, types ...thrift.Type) error {
	for _, t := range types {
		if t == thrift.STRUCT {
			w.structures += n
		} else {
			w.elements += n
		}
	}
	if w.structures > maxStructures || w.elements > maxElements {
		return invalid("write the file again with larger row groups", "its metadata has too many elements")
	}
	for range n {
		for _, t := range types {
			var err error
			if t == thrift.TRUE || t == thrift.FALSE { // a byte each, unlike a field
				_, err = w.r.ReadBool()
			} else {
				err = w.walk(t, depth+1)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
