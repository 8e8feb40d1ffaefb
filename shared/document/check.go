package document

import "rollout/shared/fault"

// CheckKey refuses, as Invalid, a key that some store can't hold.
func CheckKey(key string) error {
	if key == "" {
		return fault.New(fault.Invalid, "document key is empty")
	}
	return checkText("document key", key)
}

// CheckPrefix is CheckKey for prefixes and page tokens, which may be empty.
func CheckPrefix(prefix string) error { return checkText("document prefix", prefix) }

func checkText(what, text string) error {
	if len(text) > MaxKey {
		return fault.New(fault.Invalid, "%s %.32q… is %d bytes, the limit is %d", what, text, len(text), MaxKey)
	}
	for i := range len(text) {
		if c := text[i]; c < 0x21 || c > 0x7e {
			return fault.New(fault.Invalid, "%s %q has byte 0x%02x at %d, only printable ASCII (0x21 to 0x7e) is allowed",
				what, text, c, i)
		}
	}
	return nil
}

// CheckWrite checks the key and the value of a Create or Replace.
func CheckWrite(key string, value []byte) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fault.New(fault.Invalid, "value of document %s is %d bytes, the limit is %d", key, len(value), MaxValue)
	}
	return nil
}

// CheckKeys checks the arguments of GetMany.
func CheckKeys(keys []string) error {
	if len(keys) > MaxKeys {
		return fault.New(fault.Invalid, "get of %d documents at once, the limit is %d", len(keys), MaxKeys)
	}
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			return err
		}
	}
	return nil
}

// CheckList checks the arguments of List.
func CheckList(prefix, after string, limit int) error {
	if limit < 1 || limit > MaxPage {
		return fault.New(fault.Invalid, "list of documents %s*: limit %d is not within 1 to %d", prefix, limit, MaxPage)
	}
	if err := CheckPrefix(prefix); err != nil {
		return err
	}
	return CheckPrefix(after)
}

// KeyRange returns the half-open range [from, to) of the keys that start with
// prefix: the port's keys end below 0x7f.
func KeyRange(prefix string) (from, to string) { return prefix, prefix + "\x7f" }
