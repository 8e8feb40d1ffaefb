// Package corpus makes the training documents and the held-out documents of the
// shipped model from two public-domain texts: the King James Bible, from the data
// file of Debian's package bible-kjv-text, and Newton's Opticks, from the test data
// of Go's source tree.
//
// A document is a chapter of the Bible or about 4 KiB of the Opticks. One document
// in 25 of each text, chosen by the digest of its name, is held out for evaluation;
// no part of it is in the training documents. One in twelve of the others is also
// in the training documents as chats, so that the model learns turns.
//
// The same texts give the same documents on every machine. KJV and Opticks parse the
// texts, Build makes the documents, Write and Read encode and decode them. The
// package never accesses files or the network.
package corpus
