package config

import (
	"os"
	"testing"

	"rollout/shared/fault"
)

func FuzzParseRun(f *testing.F) {
	addSeeds(f, "testdata/bad_run.toml")
	f.Fuzz(func(t *testing.T, src []byte) {
		r, err := ParseRun("x.toml", src)
		wantFault(t, err)
		if err == nil {
			if err := r.Check(); err != nil {
				t.Errorf("parsed, but Check returns %v", err)
			}
			if string(r.Sampling.Canonical()) == "{}" && (r.Sampling.Temperature != nil || r.Sampling.TopP != nil) {
				t.Errorf("accepted sampling params that JSON cannot represent: %+v", r.Sampling)
			}
		}
	})
}

func FuzzParseDeployment(f *testing.F) {
	addSeeds(f, "testdata/bad_deployment.toml", "testdata/cloud.toml", "testdata/bad_cloud.toml")
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := ParseDeployment("x.toml", src)
		wantFault(t, err)
		if err != nil {
			return
		}
		if err := d.Check(); err != nil {
			t.Errorf("parsed, but Check returns %v", err)
		}
		wantCompact(t, src, d)
	})
}

func FuzzParseInfer(f *testing.F) {
	addSeeds(f, "testdata/infer.toml", "testdata/bad_infer.toml")
	f.Fuzz(func(t *testing.T, src []byte) {
		_, err := ParseInfer("x.toml", src)
		wantFault(t, err)
	})
}

func FuzzParseTrain(f *testing.F) {
	addSeeds(f, "testdata/train_sft.toml", "testdata/train_rm.toml", "testdata/bad_train.toml")
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := ParseTrain("x.toml", src)
		wantFault(t, err)
		if err == nil {
			if err := got.Check(); err != nil {
				t.Errorf("parsed, but Check returns %v", err)
			}
		}
	})
}

func addSeeds(f *testing.F, files ...string) {
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("schema_version = 1\na = [[{b.\"c\" = '''x''''}]]\n[[p]]\n[p.q]\n"))
}

func wantFault(t *testing.T, err error) {
	t.Helper()
	if err != nil && (!fault.Is(err, fault.Invalid) || err.Error() == "") {
		t.Errorf("%v has kind %v, want invalid", err, fault.KindOf(err))
	}
}
