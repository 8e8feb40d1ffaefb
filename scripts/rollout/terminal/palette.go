package terminal

// Palette colours text if it is true, and leaves it unchanged if it is false.
type Palette bool

// The colours and styles of a Palette.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
	Bold   = "1"
)

// In returns the text in the colour.
func (p Palette) In(colour, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
