package main

import (
	"io"
	"reflect"
	"testing"
)

func TestEachFaultHasAFlag(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{
		"--context-limit=1", "--context-exact", "--refuse=x", "--overload-every=1", "--retry-after=1s", "--retry-date",
		"--minute-limit=1", "--minute-tokens=1", "--limit-headers", "--chat-only", "--no-metrics", "--gateway-timeout=1s",
		"--hang-early=x", "--hang=x", "--freeze-after=1", "--health-delay=1s",
		"--drop-early=x", "--drop=x", "--die=x", "--die-after=1",
		"--error=x", "--error-after=1", "--empty=x", "--no-choices=x", "--echo=x",
		"--bad-logprobs=x", "--surrogates=x", "--separators=x", "--json-spaces=x", "--json-stuck=x", "--spaces-times=1",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	faults := reflect.ValueOf(o.config.Faults)
	for i := range faults.NumField() {
		if faults.Field(i).IsZero() {
			t.Errorf("no flag sets %s", faults.Type().Field(i).Name)
		}
	}
}
