package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// matrix names what a scheduler of trials has to hold, and the tests that hold it: twelve edges by
// their numbers, and what is to be tested of a run under control. A test is FOLDER Name, or the path
// of a script. Of the plan, number 9 is about programs in containers.
var matrix = map[string][]string{
	"edge_01_duplicate_completion": {
		"shared/core/run/testdata/edge_01_duplicate_completion_is_dropped.txt",
		"shared/core/run TestInvariantsHoldUnderFaults",
	},
	"edge_02_unknown_completion": {
		"shared/core/run/testdata/edge_02_unknown_completion_is_rejected.txt",
		"shared/core/run/testdata/edge_02_unknown_completion_ends_a_fail_fast_run.txt",
		"gpuworker/worker TestUndecodableMessageIsDeadLettered",
	},
	"edge_03_crash_before_the_save": {
		"shared/core/run/testdata/edge_03_crash_before_the_save.txt",
		"localstack/sim TestSimulation",
	},
	"edge_04_crash_before_the_effects": {
		"shared/core/run/testdata/edge_04_crash_before_the_effects.txt",
		"functions/coordinate TestInheritedEffectsArePerformedFirst",
	},
	"edge_05_pause_while_dispatching": {
		"shared/core/run/testdata/edge_05_pause_stops_dispatch_first.txt",
		"gpuworker/worker TestI9PausedRunIsNotClaimedWithLongHeartbeatInterval",
	},
	"edge_06_missed_pause": {
		"shared/core/run/testdata/edge_06_missed_pause_is_interrupted.txt",
		"functions/coordinate TestPauseWaitsForLivingHoldersOfThePool",
		"functions/diagnosis TestTrialsInFlightAreThoseOfLivingHolders",
	},
	"edge_07_orphans": {
		"shared/core/run/testdata/edge_07_orphans_are_sent_again_on_resume.txt",
		"localstack/e2e TestReplacedWorkerRepeatsOnlyWhatWasInFlight",
	},
	"edge_08_malformed_answers": {
		"shared/core/run/testdata/edge_08_malformed_answers_are_committed.txt",
	},
	"edge_09_full_disk": {
		"shared/core/run/testdata/edge_09_storage_failures_are_committed.txt",
		"localstack/e2e TestRunSurvivesAFullDisk",
	},
	"edge_10_remote_duplicates": {
		"shared/core/run/testdata/edge_10_late_duplicates_of_an_older_generation.txt",
		"gpuworker/worker TestWorkerThatLosesCommitRaceSendsNoEvent",
	},
	"edge_11_chain_overlap": {
		"shared/core/run/testdata/gaps_chains.txt",
		"localstack/e2e TestTrialsOfAChainFollowEachOther",
	},
	"edge_12_limit_above_capacity": {
		"shared/core/run/testdata/edge_12_window.txt",
		"shared/core/run TestRunRemembersWhatItsWorkersTake",
		"functions/finalize TestSummaryWarnsOfALimitThatWorkersCouldNotReach",
		"localstack/e2e TestTrialsKeepTheirLimits",
	},
	"plan_01_gating": {
		"localstack/e2e TestTrialsKeepTheirLimits",
		"localstack/e2e TestTrialsOfAChainFollowEachOther",
		"shared/core/schedule TestVariantsHaveLimitsOfTheirOwn",
		"shared/core/run TestChildSendsItsTouchedShardsAlone",
	},
	"plan_02_ordered_commit": {
		"shared/core/run TestCommitLogCommitsInOrder",
		"shared/core/run TestInvariantsHoldUnderFaults",
	},
	"plan_03_duplicates": {
		"shared/core/run TestInvariantsHoldUnderFaults",
	},
	"plan_04_pruning": {
		"shared/core/run/testdata/gaps_pruned.txt",
		"functions/coordinate TestPrunedVariantIsPassedOver",
	},
	"plan_05_limit_of_four": {
		"localstack/e2e TestTrialsKeepTheirLimits",
	},
	"plan_06_pause_and_resume": {
		"localstack/e2e TestKilledProcessesDoNotChangeThePausedResult",
		"shared/core/run/testdata/pause_and_resume.txt",
	},
	"plan_07_crash_and_continue": {
		"localstack/e2e TestTrialsHaveTheSameFilesWhoeverAnswers",
		"localstack/e2e TestReplacedWorkerRepeatsOnlyWhatWasInFlight",
		"localstack/sim TestSimulation",
	},
	"plan_08_parallel_equals_serial": {
		"localstack/e2e TestTrialsHaveTheSameFilesWhoeverAnswers",
	},
	"plan_10_schemas": {
		"functions/diagnosis TestTrialsInFlightAreThoseOfLivingHolders",
		"functions/api TestAnswersAreAsDescribed",
	},
	// What a worker does with a message: take it, report it, give it back, stop. Every driver passes
	// the suites of the ports below it.
	"worker_boundary": {
		"gpuworker/worker TestClaimByShardAndHolderState",
		"gpuworker/worker TestMessageIsAcknowledgedWhenClaimHolds",
		"gpuworker/worker TestOneOfTwoWorkersClaimsEachShard",
		"gpuworker/worker TestI11WorkerWithoutLeaseStopsWriting",
	},
	"infrastructure_moves_no_score": {
		"shared/trials TestInfrastructureMovesNoScore",
	},
	"amended_run_equals_a_whole_one": {
		"localstack/e2e TestAmendedTrialsAreThoseOfAWholeRun",
	},
	"retry_asks_what_is_selected": {
		"localstack/e2e TestRetryOfStoppedTrialsAsksWhatHasNoScore",
	},
	"replaced_machine_repeats_in_flight": {
		"localstack/e2e TestReplacedWorkerRepeatsOnlyWhatWasInFlight",
	},
}

// TestEachEdgeOfTrialsHasItsTests checks that the tests that the matrix names exist.
func TestEachEdgeOfTrialsHasItsTests(t *testing.T) {
	t.Parallel()
	for name, tests := range matrix {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, test := range tests {
				folder, function, isFunction := strings.Cut(test, " ")
				if !isFunction {
					if _, err := os.Stat(filepath.Join("..", "..", test)); err != nil {
						t.Error(err)
					}
				} else if !hasTest(t, folder, function) {
					t.Errorf("%s has no test %s", folder, function)
				}
			}
		})
	}
}

// hasTest reports whether a folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declares := regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`)
	for _, f := range files {
		if declares.MatchString(read(t, f)) {
			return true
		}
	}
	return false
}
