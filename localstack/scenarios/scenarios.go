// Package scenarios has the end-to-end tests that every cloud passes: what users do with an
// installation, and what disturbs it.
//
// A test of one cloud deploys installations with the emulators and the real programs of
// that cloud, and calls Run and Disturb. The package knows no cloud. Its measure is the
// laptop: the files of a run have the bytes that `rollout up` writes on one machine for the
// same input, config and answers.
//
//	e2e of a cloud ──▶ Run, Disturb ──▶ Cloud.Deploy ──▶ Installation ◀── uploads, commands, notices
//	                                                          │
//	                                    rollout up ──▶ same files?
package scenarios

import "testing"

// Scenario is something that users do with an installation, or that happens to it.
type Scenario struct {
	Name string
	run  func(t *testing.T, c Cloud)
}

// All are the scenarios that Run runs.
var All = []Scenario{
	{"each uploaded file becomes one run", eachUploadBecomesOneRun},
	{"the files of a large run are written in segments", largeRunIsWrittenInSegments},
	{"the facts of a run are those of a laptop", factsAreThoseOfALaptop},
	{"an upload starts machines that end when idle", uploadStartsMachines},
	{"lost and preempted machines change no byte", lostAndPreemptedMachines},
	{"people are told in order, and nothing waits for them", peopleAreTold},
	{"commands and the API tell the same", commandsAndAPI},
	{"a stopped run keeps its answers", stoppedRunKeepsItsAnswers},
	{"a paused run sends no request and goes on", pausedRunGoesOn},
	{"a token budget holds", tokenBudgetHolds},
	{"a budget in dollars holds", dollarBudgetHolds},
	{"a run that fails fast asks nothing more", failFastHolds},
	{"a new run does not wait behind the queue of another", newRunHasItsShare},
	{"children have the files of children on a laptop", childrenOfARun},
	{"a rollout learns what it learns on a laptop", rolloutLearns},
	{"the documents of ended runs expire and their files stay", documentsExpire},
	{"a training is resumed on another machine", trainingResumesOnAnotherMachine},
}

// Run runs each scenario in the cloud, in an installation of its own.
func Run(t *testing.T, c Cloud) {
	for _, s := range All {
		t.Run(s.Name, func(t *testing.T) {
			if c.Parallel {
				t.Parallel()
			}
			s.run(t, c)
		})
	}
}
