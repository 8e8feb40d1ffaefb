// Package train is `rollout train`: it trains in this process, keeps snapshots
// in a folder's installation, shows how it goes, and leaves a loss curve.
//
// No rule of training stands here: those are package training's. A process that
// dies at any point leaves a state that Resume goes on from to the same bytes.
package train
