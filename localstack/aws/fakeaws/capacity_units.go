package fakeaws

import (
	"encoding/base64"
	"encoding/json"
	"math"
)

// DynamoDB's capacity units: one write unit for each KiB of an item, rounded up,
// and one strongly consistent read unit for each 4 KiB.
const (
	writeUnit = 1 << 10
	readUnit  = 4 << 10
)

// units returns the capacity units of a request, by the sizes of the items in it
// and in its answer. A write whose condition fails costs as much as one whose
// condition holds. A missing item costs one unit.
func units(operation string, in, out []byte) float64 {
	var request struct {
		Item         map[string]json.RawMessage
		RequestItems map[string]struct{ Keys []json.RawMessage }
	}
	var got struct {
		Item      map[string]json.RawMessage
		Items     []map[string]json.RawMessage
		Responses map[string][]map[string]json.RawMessage
	}
	_ = json.Unmarshal(in, &request) // other requests have no items
	_ = json.Unmarshal(out, &got)
	each := func(bytes, unit int) float64 { return max(1, math.Ceil(float64(bytes)/float64(unit))) }
	switch operation {
	case "PutItem":
		return each(itemSize(request.Item), writeUnit)
	case "DeleteItem", "UpdateItem":
		return 1
	case "GetItem":
		return each(itemSize(got.Item), readUnit)
	case "Query", "Scan":
		sum := 0
		for _, i := range got.Items {
			sum += itemSize(i)
		}
		return each(sum, readUnit)
	case "BatchGetItem":
		sum, found, keys := 0.0, 0, 0
		for _, table := range got.Responses {
			for _, i := range table {
				sum += each(itemSize(i), readUnit)
				found++
			}
		}
		for _, table := range request.RequestItems {
			keys += len(table.Keys)
		}
		return sum + float64(max(0, keys-found))
	}
	return 0
}

// itemSize is the size of an item's names and values in bytes.
func itemSize(item map[string]json.RawMessage) (n int) {
	for name, value := range item {
		n += len(name) + valueSize(value)
	}
	return n
}

func valueSize(raw json.RawMessage) (n int) {
	var value map[string]json.RawMessage
	if json.Unmarshal(raw, &value) != nil {
		return 0
	}
	for kind, content := range value {
		var text string
		_ = json.Unmarshal(content, &text) // other kinds are not strings
		switch kind {
		case "S":
			n += len(text)
		case "N":
			n += len(text)/2 + 1
		case "B":
			n += base64.StdEncoding.DecodedLen(len(text))
		default:
			n += 3 + len(content) // approximately
		}
	}
	return n
}
