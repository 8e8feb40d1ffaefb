package config

import (
	"strings"
	"testing"

	"rollout/shared/fault"
)

const head = "schema_version = 1\n"

func TestParseRunProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, src, want string }{
		{"no version", "", "x.toml: schema_version: missing: add schema_version = 1 at the top of the file"},
		{"newer version hides other problems", "schema_version = 7\nfuture = 1",
			"x.toml:1: schema_version: the file has version 7, and this rollout reads up to version 1: upgrade " +
				"rollout, or rewrite the file for version 1"},
		{"version zero", "schema_version = 0", "x.toml:1: schema_version: must be 1, is 0"},
		{"version as text", "schema_version = '1'", `x.toml:1: schema_version: must be a whole number, is the string "1"`},
		{"misspelt key", head + "[sampling]\ntemprature = 1",
			"x.toml:3: sampling.temprature: unknown key; did you mean temperature?"},
		{"misplaced key", head + "temperature = 1", "x.toml:2: temperature: unknown key; did you mean sampling.temperature?"},
		{"unknown key", head + "[sampling]\nxyzzy = 1", "x.toml:3: sampling.xyzzy: unknown key in [sampling]: remove it"},
		{"unknown table", head + "[xyzzy.a]\nb = 1", "x.toml:2: xyzzy: unknown key at the top of the file: remove it"},
		{"key is case sensitive", head + "[sampling]\nTop_P = 1",
			"x.toml:3: sampling.Top_P: unknown key; did you mean top_p?"},
		{"syntax", head + "[sampling\ntop_p = 1",
			`x.toml:3: the file is not valid TOML: expected '.' or ']' to end table name, but got '\n' instead`},
		{"key twice", head + "kind = 'batch'\nkind = 'batch'",
			"x.toml:3: kind: the file is not valid TOML: Key 'kind' has already been defined."},
		{"UTF-16", "\xff\xfea\x00", "x.toml:1: the file is UTF-16: save it as UTF-8"},
		{"Latin-1", head + "# a comment\nname = \"caf\xe9\"", "x.toml:3: the file is not valid UTF-8 here: save it as UTF-8"},
		{"wrong type", head + "[sampling]\ntop_p = '1'\ntop_k = 1.5\nstop = 'a'\nstream = 1",
			`x.toml:3: sampling.top_p: must be a number, is the string "1"
x.toml:4: sampling.top_k: must be a whole number, is 1.5
x.toml:5: sampling.stop: must be a list, is the string "a"
x.toml:6: sampling.stream: must be true or false, is 1`},
		{"table expected", head + "sampling = 3", "x.toml:2: sampling: must be a table, is 3"},
		{"string expected", head + "name = 2020-01-01", "x.toml:2: name: must be a string in quotes, is a date or time"},
		{"duration", head + "[limits]\ndeadline = '5 minutes'\ngrace = 10",
			`x.toml:3: limits.deadline: "5 minutes" is not a duration: ` +
				`write a duration in quotes, such as "500ms", "10s" or "1h30m"
x.toml:4: limits.grace: must be a duration in quotes, such as "500ms", "10s" or "1h30m", is 10`},
		{"negative durations", head + "[limits]\ndeadline = '-1s'\ngrace = '-1s'",
			`x.toml:3: limits.deadline: must not be negative, is -1s
x.toml:4: limits.grace: must not be negative, is -1s`},
		{"temperature", head + "sampling.temperature = 2.1",
			"x.toml:2: sampling.temperature: must be at least 0 and at most 2, is 2.1"},
		{"NaN", head + "sampling.temperature = nan",
			"x.toml:2: sampling.temperature: must be at least 0 and at most 2, is NaN"},
		{"infinity", head + "sampling.presence_penalty = -inf",
			"x.toml:2: sampling.presence_penalty: must be at least -2 and at most 2, is -Inf"},
		{"top_p", head + "sampling.top_p = 0", "x.toml:2: sampling.top_p: must be above 0 and at most 1, is 0"},
		{"top_k", head + "sampling.top_k = -2",
			"x.toml:2: sampling.top_k: must be between -1 and 2147483647, is -2; -1 switches it off"},
		{"min_p", head + "sampling.min_p = 1.5", "x.toml:2: sampling.min_p: must be at least 0 and at most 1, is 1.5"},
		{"max_tokens", head + "sampling.max_tokens = 0",
			"x.toml:2: sampling.max_tokens: must be between 1 and 2147483647, is 0"},
		{"n", head + "sampling.n = 129", "x.toml:2: sampling.n: must be between 1 and 128, is 129"},
		{"seed", head + "sampling.seed = -1",
			"x.toml:2: sampling.seed: must not be negative, is -1: leave it out to have one derived for each item"},
		{"empty stop", head + "[sampling]\nstop = [\n 'a',\n '',\n]", "x.toml:5: sampling.stop[1]: is empty: remove it"},
		{"many stops", head + "sampling.stop = [" + strings.Repeat("'a',", 17) + "]",
			"x.toml:2: sampling.stop: has 17 strings, at most 16 are allowed"},
		{"stream", head + "sampling.stream = true",
			"x.toml:2: sampling.stream: a batch does not stream its answers: remove it"},
		{"items", head + "shard.items = -1",
			"x.toml:2: shard.items: must be between 0 and 65536, is -1; 0 chooses by the size of the input"},
		{"dialect", head + "input.dialect = 'OpenAI-batch'",
			`x.toml:2: input.dialect: "OpenAI-batch" is not a valid dialect: use plain, openai, bedrock, vertex, or ` +
				`leave it out`},
		{"dialect misspelt", head + "input.dialect = 'bedrok'",
			`x.toml:2: input.dialect: "bedrok" is not a valid dialect; did you mean "bedrock"?`},
		{"max_unpacked", head + "input.max_unpacked = 0", "x.toml:2: input.max_unpacked: must be at least 1 byte, is 0"},
		{"kind misspelt", head + "kind = 'bach'", `x.toml:2: kind: "bach" is not a valid kind of run; did you mean "batch"?`},
		{"kind unknown", head + "kind = 'poem'",
			`x.toml:2: kind: "poem" is not a valid kind of run: use batch, rollout, train, trials, or leave it out`},
		{"order", head + "shard.order = 'prefixes'",
			`x.toml:2: shard.order: "prefixes" is not a valid order; did you mean "prefix"?`},
		{"order unknown", head + "shard.order = 'random'",
			`x.toml:2: shard.order: "random" is not a valid order: use input, prefix, or leave it out`},
		{"sampled without dedupe", head + "dedupe.sampled = true",
			"x.toml:2: dedupe.sampled: has no effect without dedupe.enabled: set enabled = true, or remove it"},
		{"budget", head + "limits.tokens = -1", "x.toml:2: limits.tokens: must not be negative, is -1; 0 means no budget"},
		{"dollars", head + "limits.dollars = -0.5",
			"x.toml:2: limits.dollars: must be between 0 and 1000000000 dollars, is -0.5; 0 means no budget"},
		{"dollars that are no number", head + "limits.dollars = nan",
			"x.toml:2: limits.dollars: must be between 0 and 1000000000 dollars, is NaN; 0 means no budget"},
		{"failed share of 1", head + "limits.failed_share = 1.0",
			"x.toml:2: limits.failed_share: must be a share from 0 to below 1, is 1; 0 is off"},
		{"failed share that is no number", head + "limits.failed_share = nan",
			"x.toml:2: limits.failed_share: must be a share from 0 to below 1, is NaN; 0 is off"},
		{"failed shards in a row", head + "limits.failed_shards_in_a_row = -1",
			"x.toml:2: limits.failed_shards_in_a_row: must not be negative, is -1; 0 is off"},
		{"failures", head + "limits.failures = 0", "x.toml:2: limits.failures: must be between 1 and 100, is 0"},
		{"control characters", head + `name = "a\u0007b"`, "x.toml:2: name: has control characters: remove them"},
		{"white space", head + `model.uri = "m "`, "x.toml:2: model.uri: begins or ends with white space: remove it"},
		{"deep lists", head + "name = " + strings.Repeat("[", 5000),
			"x.toml:2: tables, lists or dotted keys are nested more than 16 deep: flatten them"},
		{"deep keys", head + strings.Repeat("a.", 5000) + "b = 1",
			"x.toml:2: tables, lists or dotted keys are nested more than 16 deep: flatten them"},
		{"deep tables", head + "a = " + strings.Repeat("{a = ", 5000),
			"x.toml:2: tables, lists or dotted keys are nested more than 16 deep: flatten them"},
		{"deep inline keys", head + "a = {" + strings.Repeat("b.", 17) + "c = 1}",
			"x.toml:2: tables, lists or dotted keys are nested more than 16 deep: flatten them"},
		{"long key", head + strings.Repeat("k", 257) + " = 1",
			"x.toml:2: a key and its enclosing tables have more than 256 bytes: shorten them"},
		{"long table", head + "\n['" + strings.Repeat("k", 1<<19) + "']\n" + strings.Repeat("a = 1\n", 1<<16),
			"x.toml:3: a key and its enclosing tables have more than 256 bytes: shorten them"},
		{"long dotted key", head + "[" + strings.Repeat("kkkkkkkkkkkkkkkkkkkkkkk.", 10) + "a]\nbbbbbbbbbbbbbbbbb = 1",
			"x.toml:3: a key and its enclosing tables have more than 256 bytes: shorten them"},
		{"many elements", head + "sampling.stop = [\n" + strings.Repeat("'',\n", 20000) + "]",
			"x.toml:10000: the file has more than 10000 keys and list elements: is it the right file?"},
		{"many tables", head + strings.Repeat("[[a]]\n", 20000),
			"x.toml:10001: the file has more than 10000 keys and list elements: is it the right file?"},
		{"too large", strings.Repeat("#", MaxFileSize+1),
			"x.toml: the file has 1048577 bytes; a config has at most 1048576: is it the right file?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseRun("x.toml", []byte(c.src))
			wantProblem(t, err, c.want)
		})
	}
}

func TestParseDeploymentProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, src, want string }{
		{"self-fence after failure timeout", "[health]\nself_fence_timeout = '6s'",
			"d.toml:3: health.self_fence_timeout: must be shorter than failure_timeout (5s), is 6s: a worker must stop " +
				"before another one takes over its shards"},
		{"self-fence equals failure timeout", "[health]\nfailure_timeout = '4s'",
			"d.toml:2: health.self_fence_timeout: must be shorter than failure_timeout (4s), is 4s: a worker must stop " +
				"before another one takes over its shards"},
		{"skew budget of two intervals", "[health]\nskew_budget = '1s'",
			"d.toml:3: health.skew_budget: must be shorter than twice heartbeat_interval (500ms), is 1s: a larger one " +
				"hides missed heartbeats"},
		{"interval equals self-fence timeout", "[health]\nheartbeat_interval = '4s'",
			"d.toml:3: health.heartbeat_interval: must be shorter than self_fence_timeout (4s), is 4s: a worker would " +
				"fence itself between two heartbeats"},
		{"zero interval", "[health]\nheartbeat_interval = '0s'\nskew_budget = '0s'",
			"d.toml:3: health.heartbeat_interval: must be longer than 0s, is 0s\n" +
				"d.toml:4: health.skew_budget: must be shorter than twice heartbeat_interval (0s), is 0s: a larger one " +
				"hides missed heartbeats"},
		{"worker", "[worker]\nin_flight = -1\ncheckpoint = '0s'\ndrain_budget = '-1s'",
			"d.toml:3: worker.in_flight: must be between 0 and 65536, is -1\n" +
				"d.toml:4: worker.checkpoint: must be longer than 0s, is 0s\n" +
				"d.toml:5: worker.drain_budget: must not be negative, is -1s"},
		{"bucket", "bucket = 'a/b'", `d.toml:2: bucket: "a/b" is not a valid name: use 1 to 63 of a-z, 0-9 and -.`},
		{"engine", "engine.url = 'vllm'",
			`d.toml:2: engine.url: must be "tiny", "mock" or a base URL such as "http://127.0.0.1:8000/v1"`},
		{"engine with a password", "engine.url = 'https://u:p@h/v1'",
			"d.toml:2: engine.url: must not hold a user or password: put the key into a secret and name it as engine.secret"},
		{"engine with a key in its query", "engine.url = 'https://h/v1?key=k'",
			"d.toml:2: engine.url: must not have a query or fragment: remove what follows the path"},
		{"bounds out of range", "[worker]\nmin_in_flight = 0\nmax_in_flight = -2",
			"d.toml:3: worker.min_in_flight: must be between 1 and 65536, is 0\n" +
				"d.toml:4: worker.max_in_flight: must be between 1 and 65536, is -2"},
		{"minimum above maximum", "[worker]\nmax_in_flight = 3",
			"d.toml:3: worker.max_in_flight: must be at least min_in_flight (4), is 3"},
		{"both url and urls", "[engine]\nurl = 'http://a'\nurls = ['http://b']",
			"d.toml:4: engine.urls: url also names the engine: remove one of them"},
		{"invalid servers", "engine.urls = ['http://a', 'b', 'http://a', 'mock', 'http://u:p@h']",
			`d.toml:2: engine.urls[1]: must be "tiny", "mock" or a base URL such as "http://127.0.0.1:8000/v1"
d.toml:2: engine.urls[2]: "http://a" is listed twice: name each server once
d.toml:2: engine.urls[3]: "mock" is not a server: set it alone, as url
d.toml:2: engine.urls[4]: must not hold a user or password: put the key into a secret and name it as engine.secret`},
		{"unknown way to be ready", "engine.ready = 'soon'",
			`d.toml:2: engine.ready: "soon" is not known: use "auto", "none", ` +
				`or a path from the server's root such as "/readyz"`},
		{"unknown way to stream", "engine.stream = 'yes'\n[engines.a]\nurl = 'http://a'\nstream = 'no'",
			"d.toml:2: engine.stream: \"yes\" is not known: use \"auto\", \"always\" or \"never\"\n" +
				"d.toml:5: engines.a.stream: \"no\" is not known: use \"auto\", \"always\" or \"never\""},
		{"named engines", "[engines.a]\nurl = 'tiny'\n[engines.B]\nurl = 'http://b'\nsecret = 'k'\n[[pool]]\nname = 'p'\n" +
			"model = 'm'\nengine = 'c'\n[[pool]]\nname = 'q'\nmodel = 'rollout/tiny'\nexecutor = 'train'\nengine = 'a'",
			`d.toml:3: engines.a.url: must name a server: "tiny" and "mock" are for [engine] alone
d.toml:4: engines.B: "B" is not a valid name: use 1 to 32 of a-z, 0-9 and -
d.toml:6: engines.B.secret: "k" is not in the allowlist: add it to secrets
d.toml:10: pool[0].engine: no engine is named "c": add [engines.c] with its url
d.toml:15: pool[1].engine: a training asks no engine: remove it`},
		{"secret not allowed", "engine.secret = 'k'",
			`d.toml:2: engine.secret: "k" is not in the allowlist: add it to secrets`},
		{"invalid secret name", "secrets = ['A_B']",
			`d.toml:2: secrets[0]: "A_B" is not a valid name: use 1 to 64 of a-z, 0-9 and -`},
		{"pool without model", "[[pool]]\nname = 'p'",
			"d.toml:2: pool[0].model: missing: name the model that the pool serves"},
		{"pool without name", "[[pool]]\nmodel = 'm'", "d.toml:2: pool[0].name: missing: give it a name of a-z, 0-9 and -"},
		{"pool named like a dead-letter queue", "[[pool]]\nname = 'p-dead'\nmodel = 'm'",
			`d.toml:3: pool[0].name: "p-dead" ends like the names of dead-letter queues: give the pool another name`},
		{"pools with equal name and model", "[[pool]]\nname = 'p'\nmodel = 'm'\n[[pool]]\nname = 'p'\nmodel = 'm'",
			`d.toml:6: pool[1].name: "p" is the name of an earlier pool: give each pool its own` + "\n" +
				`d.toml:7: pool[1].model: "m" is served by an earlier pool: declare one pool for each model`},
		{"invalid pool name", "pool = [{name = 'P', model = 'm'}]",
			`d.toml:2: pool[0].name: "P" is not a valid name: use 1 to 32 of a-z, 0-9 and -`},
		{"misspelt pool key", "[[pool]]\nname = 'p'\nmodell = 'm'\nmodel = 'm'",
			"d.toml:4: pool[0].modell: unknown key; did you mean model?"},
		{"limits of a pool", "[[pool]]\nname = 'p'\nmodel = 'm'\nrequests_per_minute = -1\ntokens_per_minute = 2_000_000_000",
			"d.toml:5: pool[0].requests_per_minute: must be between 0 and 1000000000, is -1\n" +
				"d.toml:6: pool[0].tokens_per_minute: must be between 0 and 1000000000, is 2000000000"},
		{"limit of trainings",
			"[[pool]]\nname = 'p'\nmodel = 'rollout/tiny'\nexecutor = 'train'\ntokens_per_minute = 100",
			"d.toml:6: pool[0].tokens_per_minute: a training asks no engine: remove it"},
		{"defaults", "[defaults.sampling]\ntop_p = 2",
			"d.toml:3: defaults.sampling.top_p: must be above 0 and at most 1, is 2"},
		{"table of a run outside defaults", "[sampling]\ntop_p = 1",
			"d.toml:2: sampling: unknown key; did you mean defaults.sampling?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseDeployment("d.toml", []byte(head+c.src))
			wantProblem(t, err, c.want)
		})
	}
}

func TestParseInferProblems(t *testing.T) {
	t.Parallel()
	const good = "model.uri = 'm'\ninput.glob = 'in/*.jsonl'\n"
	for _, c := range []struct{ name, src, want string }{
		{"empty file", "", `i.toml: model.uri: missing: name the model, such as "Qwen/Qwen2.5-0.5B-Instruct"
i.toml: input.glob: missing: name the prompts files, such as "data/prompts/*.jsonl"
i.toml: output.dir: missing: name the folder for completions.jsonl, such as "data/completions"`},
		{"workers", good + "output.dir = 'o'\nworkers.count = 0",
			"i.toml:4: workers.count: must be between 1 and 1024, is 0"},
		{"glob", "model.uri = 'm'\ninput.glob = 'in/[*.jsonl'\noutput.dir = 'o'",
			`i.toml:2: input.glob: "in/[*.jsonl" is not a valid pattern: close its brackets and braces`},
		{"output folder inside the input", good + "output.dir = './in/'",
			`i.toml:3: output.dir: input.glob ("in/*.jsonl") would read the run's own completions.jsonl: write to ` +
				`another folder`},
		{"kind is not a setting", good + "output.dir = 'o'\nkind = 'batch'",
			"i.toml:4: kind: unknown key at the top of the file: remove it"},
		{"newer version", good + "schema_version = 2",
			"i.toml:3: schema_version: the file has version 2, and this rollout reads up to version 1: upgrade " +
				"rollout, or rewrite the file for version 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseInfer("i.toml", []byte(c.src))
			wantProblem(t, err, c.want)
		})
	}
}

func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(head)
	for range 300 {
		b.WriteString("[[pool]]\n")
	}
	_, err := ParseDeployment("d.toml", []byte(b.String()))
	if err == nil {
		t.Fatal("accepted 300 pools without names")
	}
	lines := strings.Split(err.Error(), "\n")
	if got, want := lines[len(lines)-1], "d.toml: and 500 more problems"; len(lines) != maxProblems+1 || got != want {
		t.Errorf("%d lines, the last %q; want %d, %q", len(lines), got, maxProblems+1, want)
	}
}

func wantProblem(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted; want %s", want)
	}
	if err.Error() != want {
		t.Errorf("\ngot  %s\nwant %s", err, want)
	}
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("kind %v, want invalid", fault.KindOf(err))
	}
}
