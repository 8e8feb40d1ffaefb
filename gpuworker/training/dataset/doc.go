// Package dataset reads the rows that a training learns from: JSON lines of
// prompts and answers, or of pairs of answers.
//
// A file of any size is read in bounded memory: once, to check every row and
// to note where some of them stand, and then row by row, in an order that is a
// pure function of a seed. A row that is no row is told with file and line; a
// file whose bytes change while it is trained on is noticed when a changed row
// is read.
//
// The package never writes, never makes tokens of a row, and never holds more
// than one row's line.
package dataset
