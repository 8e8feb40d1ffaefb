package config

import (
	"strings"
	"testing"
)

func TestAmendedConfigIsChecked(t *testing.T) {
	t.Parallel()
	c := DefaultRun()
	c.Kind, c.Design = KindTrials, &Design{Replications: 3, Order: TrialsInterleaved}
	c.Variants = []Variant{{Name: "plain"}}
	got, err := c.Amend(5, []Variant{{Name: "terse", System: "Be terse."}})
	if err != nil || got.Design.Replications != 5 || len(got.Variants) != 2 || c.Design.Replications != 3 ||
		len(c.Variants) != 1 {
		t.Errorf("%+v (%v), of %+v", got, err, c)
	}
	if same, err := c.Amend(0, nil); err != nil || same.Design.Replications != 3 {
		t.Errorf("%+v (%v)", same, err)
	}
	for want, amend := range map[string]func() (Run, error){
		"must be more than the 3 that the run has, is 3": func() (Run, error) { return c.Amend(3, nil) },
		"must be between 1 and 1000":                     func() (Run, error) { return c.Amend(maxReplications+1, nil) },
		"variant[1].name: \"plain\" is the name of an earlier variant": func() (Run, error) {
			return c.Amend(0, []Variant{{Name: "plain"}})
		},
	} {
		if _, err := amend(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestFileOfVariantsHasVariantsAlone(t *testing.T) {
	t.Parallel()
	const two = "[[variant]]\nname = \"a\"\nsampling.temperature = 0.5\n[[variant]]\nname = \"b\"\n"
	got, err := ParseVariants("v.toml", []byte(two))
	if err != nil || len(got) != 2 || *got[0].Sampling.Temperature != 0.5 {
		t.Errorf("%+v (%v)", got, err)
	}
	for src, want := range map[string]string{
		"":                                   "variant: missing",
		"[design]\nreplications = 2\n":       "design",
		"[[variant]]\nname = \"a\"\nx = 1\n": "v.toml:3",
	} {
		if _, err := ParseVariants("v.toml", []byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", src, err, want)
		}
	}
}
