// Package corpus makes the text that the shipped model learns from and is
// judged by: the King James Bible out of the data file of Debian's package
// bible-kjv-text, and Newton's Opticks, which Go's own source tree carries for
// its tests. Both texts are in the public domain.
//
// A document is a chapter of the Bible or some 4 KiB of the Opticks. One in 25
// of each, chosen by the digests of their names, is held out: it is for
// evaluation alone, and no part of it is learnt from, in any form. One in
// twelve of the others is learnt a second time in the form of chats, so that
// the model knows turns.
//
// The same sources give the same corpus anywhere. The package never fetches
// anything: it is given files.
package corpus
