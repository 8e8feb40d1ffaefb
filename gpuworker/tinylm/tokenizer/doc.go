// Package tokenizer turns text into the tokens of the tiny engine and back:
// byte-level byte-pair encoding (Sennrich et al. 2016, over bytes as in GPT-2),
// with a vocabulary of our own, learnt by Train.
//
// Ids 0 to 255 are the bytes, 256 and up the merges in the order in which they
// were learnt, and the last four are special: EndOfText, System, User and
// Assistant. Any bytes encode, and decode to exactly themselves. Text never
// becomes a special token, whatever it spells: only AppendTurn and AppendReply
// place them.
//
// Text is first cut into words by GPT-2's pattern, which llama.cpp calls
// "gpt-2", so that an exported model gets the same ids there.
//
// The package never cleans, normalises or folds text.
package tokenizer
