// Package e2e tries the product on AWS with real processes: the functions as
// they are deployed, workers on instances that come and go, the command line,
// and beside them an inference server. What of AWS an emulator has not, a
// stand-in has (package standin).
//
// Whatever happens on the way, a run's files are those that a laptop writes for
// the same input and config. Chance is drawn from seeds, which failures name.
package e2e
