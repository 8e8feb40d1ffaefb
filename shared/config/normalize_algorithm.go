package config

// shorthands are tables of which a string may stand for one key.
var shorthands = map[string]string{"base_model": "uri", "head": "kind", "loss_on": "kind", "packing": "kind"}

// normalizeAlgorithm gives the [algorithm] table x its one form: head = "a" is
// head = { kind = "a" }, dataset.type is dataset.kind, and a kind that is left
// out is that of the only table. What has no such form is left to the binder.
func normalizeAlgorithm(c *checker, x any, at string) {
	algorithm, ok := x.(map[string]any)
	if !ok {
		return
	}
	var kinds []string
	for _, kind := range []string{AlgorithmSFT, AlgorithmRM} {
		if table, ok := algorithm[kind].(map[string]any); ok {
			kinds = append(kinds, kind)
			normalizeSettings(c, table, at+"."+kind)
		}
	}
	if _, ok := algorithm["kind"]; !ok && len(kinds) == 1 {
		algorithm["kind"] = kinds[0]
	}
}

func normalizeSettings(c *checker, table map[string]any, at string) {
	for name, key := range shorthands {
		if text, ok := table[name].(string); ok {
			table[name] = map[string]any{key: text}
		}
	}
	dataset, ok := table["dataset"].(map[string]any)
	if !ok {
		return
	}
	kind, named := dataset["type"]
	if !named {
		return
	}
	if _, both := dataset["kind"]; both {
		c.add(at+".dataset.type", "is another name of kind, which is given too: remove one of them")
	}
	dataset["kind"] = kind
	delete(dataset, "type")
}
