package record

// Trials is what a run of trials came to.
type Trials struct {
	Tasks    int            `json:"tasks"` // with a trial
	Trials   int            `json:"trials"`
	Looks    int            `json:"looks,omitempty"` // at which the run could prune variants
	Variants []TrialVariant `json:"variants"`        // in the order of the config
	// JudgesUSD is what the tokens of judges cost at the prices of their engines; null without
	// judges, and if an engine of theirs has no prices.
	JudgesUSD *float64 `json:"judges_usd"`
}

// PrunedAt is where a variant was pruned.
type PrunedAt struct {
	Look  int    `json:"look"` // from 1 on
	Looks int    `json:"looks"`
	From  int    `json:"from"` // the schedule index from which on it was not tried
	Why   string `json:"why"`  // for users. Example: "look 3 of 10: its score …"
}

// TrialVariant is what one variant came to. Each of its Trials is answered, failed, pruned, or
// lost to the infrastructure.
type TrialVariant struct {
	Name     string `json:"name"`
	Trials   int    `json:"trials"`
	Answered int    `json:"answered"`
	// Failed counts the trials that the variant lost, by class. Each scores 0.
	Failed map[string]int `json:"failed,omitempty"`
	// Infrastructure counts the trials that nothing can be said about, by class. They are in no
	// mean.
	Infrastructure map[string]int `json:"infrastructure,omitempty"`
	Pruned         int            `json:"pruned,omitempty"` // that were never begun
	// PrunedAt says why the variant was pruned; nil if it was not.
	PrunedAt *PrunedAt `json:"pruned_at,omitempty"`
	// Ungraded counts the answers without a score, by the cause. They are in no mean.
	Ungraded map[string]int `json:"ungraded,omitempty"`
	Scored   int            `json:"scored"` // trials with a score
	// ScoredTasks is how many tasks these are of. Score is their mean, with its standard error
	// and 95 % interval, for which the trials of one task count as one piece of evidence; null
	// where there is too little to say. The interval is Student's or, of scores that are all 0 or
	// 1, Wilson's.
	ScoredTasks   int      `json:"scored_tasks"`
	Score         *float64 `json:"score"`
	StandardError *float64 `json:"standard_error"`
	Low           *float64 `json:"low"`
	High          *float64 `json:"high"`
	// Worst and Best are the mean if each trial that was begun and has no score had 0, or 1; null
	// if scores are not all from 0 to 1.
	Worst            *float64 `json:"worst"`
	Best             *float64 `json:"best"`
	PromptTokens     int64    `json:"prompt_tokens"`
	CompletionTokens int64    `json:"completion_tokens"`
	Model            string   `json:"model,omitempty"` // that answered; "" in summaries of old versions
	// TokensUSD is what these tokens cost at the prices of the engine of the variant's pool, without
	// those of requests that led to no answer, and without judges; null if the engine has no prices.
	TokensUSD *float64 `json:"tokens_usd"`
	// SolvedTasks is how many tasks have a trial that succeeds: with a score of 1 or more.
	// USDPerSolved is TokensUSD by them; null without one.
	SolvedTasks  int      `json:"solved_tasks"`
	USDPerSolved *float64 `json:"usd_per_solved_task"`
	// UntilSuccess is what it takes to have a success; null without one.
	UntilSuccess *UntilSuccess `json:"until_success"`
}

// UntilSuccess says what it takes a variant to solve a task that it solves at all, if the task is
// tried until a trial succeeds: the mean over the variant's SolvedTasks. What a task takes is
// estimated by all its trials with a score: their sum, by how many of them succeed.
type UntilSuccess struct {
	Trials float64  `json:"trials"`
	USD    *float64 `json:"usd"` // of tokens; null without prices, and if those of a trial are not known
	// Seconds are of agents, which alone are timed: null if a trial is of none, or its agent failed.
	Seconds *float64 `json:"seconds"`
	// SuccessMedian and SuccessP90 are of the seconds of the trials that succeed; null if one is of no agent.
	SuccessMedian *float64 `json:"success_seconds_median"`
	SuccessP90    *float64 `json:"success_seconds_p90"`
}
