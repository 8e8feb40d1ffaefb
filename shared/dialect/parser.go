package dialect

import "rollout/shared/jsonl"

// Parser parses many lines, with the memory of the line before. It is for one goroutine.
type Parser struct {
	dialect Name
	item    Item
	members []jsonl.Member
	key     []byte
}

// NewParser returns a parser of lines of the dialect.
func NewParser(d Name) *Parser { return &Parser{dialect: d} }

// Parse is like the function Parse. The item is valid until the next call.
func (p *Parser) Parse(line []byte) (*Item, error) {
	members, err := p.readLine(line)
	if err == nil {
		err = p.item.parse(members)
	}
	return &p.item, err
}

// ParseWithID is like Parse for a line with an id of its own. Of other lines it reads
// no more than that: ok is false.
func (p *Parser) ParseWithID(line []byte) (it *Item, ok bool, err error) {
	members, err := p.readLine(line)
	if !p.item.HasID {
		return nil, false, nil
	}
	if err == nil {
		err = p.item.parse(members)
	}
	return &p.item, true, err
}

func (p *Parser) readLine(line []byte) ([]jsonl.Member, error) {
	p.item = Item{dialect: p.dialect, extra: p.item.extra[:0]}
	members, err := p.item.readLine(p.members[:0], line)
	if cap(members) > cap(p.members) {
		p.members = members
	}
	return members, err
}

// Marks before the id in a key. No text in UTF-8 begins with one.
const (
	markNumber  = 0xff // the id is a number: 1 is another id than "1"
	markInvalid = 0xfe // the line is not a request: it takes no id
)

// IDKey returns what tells an item's own id apart from those of other lines: a number is
// no text, and what is not a valid request takes no id from one. The key is valid until
// the next call.
func (p *Parser) IDKey(it *Item, valid bool) []byte {
	p.key = p.key[:0]
	if !valid {
		p.key = append(p.key, markInvalid)
	}
	if isNumber(it.rawID) {
		p.key = append(p.key, markNumber)
	}
	p.key = append(p.key, it.ID...)
	return p.key
}

// IDKeys returns the keys of all lines whose own id has the text.
func IDKeys(text string) [][]byte {
	keys := [][]byte{[]byte(text), append([]byte{markInvalid}, text...)}
	if text != "" && isNumber([]byte(text)) {
		keys = append(keys, append([]byte{markNumber}, text...), append([]byte{markInvalid, markNumber}, text...))
	}
	return keys
}
