// Package tokenizer converts text to the tokens of the tiny engine and back. It
// implements byte-level byte-pair encoding (Sennrich et al. 2016, over bytes as
// in GPT-2). Train learns a vocabulary from documents; Bytes and Parse write and
// read it.
//
// Ids 0 to 255 are the bytes. The ids from 256 on are the merges, in the order in
// which they were learnt. The last four ids are special tokens: EndOfText,
// System, User and Assistant. Any bytes can be encoded, and decode to the same
// bytes. Text never encodes to a special token, even if it spells the token's
// name; only AppendTurn and AppendGenerationPrompt add special tokens.
//
// Encode first cuts text into words with GPT-2's pattern, which llama.cpp calls
// "gpt-2", so that llama.cpp computes the same ids for an exported model.
//
// The package never cleans, normalises or case-folds text.
package tokenizer
