package weights

import "testing"

func TestShippedModelIsSmallAndConsistent(t *testing.T) {
	t.Parallel()
	if most := 3 << 20; len(shipped) > most {
		t.Errorf("the file has %d bytes, want at most %d", len(shipped), most)
	}
	b, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	if b.Name != "rollout/tiny" || b.Tokenizer.Vocab() != b.Model.Config().Vocab {
		t.Errorf("%s has %d tokens, its tokenizer %d; want rollout/tiny with equal numbers",
			b.Name, b.Model.Config().Vocab, b.Tokenizer.Vocab())
	}
}
