package weights

import "testing"

func TestTheShippedModelIsSmallAndKnown(t *testing.T) {
	t.Parallel()
	if most := 3 << 20; len(shipped) > most {
		t.Errorf("it has %d bytes, more than %d", len(shipped), most)
	}
	b, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	if b.Name != "rollout/tiny" || b.Tokenizer.Vocab() != b.Model.Config().Vocab {
		t.Errorf("%s has %d tokens for a tokenizer of %d", b.Name, b.Model.Config().Vocab, b.Tokenizer.Vocab())
	}
}
