package rollout

// The rows of a rollout's files, for programs that read them.
type (
	Trajectory = trajectory // of TrajectoriesFile
	Failure    = failure    // of FailuresFile, about a member: rows about a line of the input have only Cause and Message
	Selected   = selected   // of SelectionsFile and ReviewFile
	Metrics    = metrics    // of MetricsFile
)
