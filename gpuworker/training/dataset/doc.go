// Package dataset reads the rows of training data: JSON lines of prompts and
// answers, or of pairs of answers.
//
// It reads a file of any size in bounded memory. Open reads the whole file once,
// checks every row and records the positions of some. Row then reads single rows,
// in an order that depends only on a seed (see Order). Errors of rows name the
// file and the line. If the file's bytes change during training, reading a changed
// row fails.
//
// The package never writes, never tokenizes, and never holds more than one row's
// line in memory.
package dataset
