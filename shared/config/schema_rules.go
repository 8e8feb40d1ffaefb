package config

import (
	"math"
	"reflect"
	"strings"

	"rollout/shared/core/servers"
)

// schemaRule says what a schema demands of a key beside its type. The checks are in the
// check methods; a test asks them whether they agree with every bound and choice here.
type schemaRule struct {
	min, max             *float64
	aboveMin, belowMax   bool     // the bounds themselves are not allowed
	enum                 []any    // all values; "" stands for the key that is left out
	minLength, maxLength int      // of a text; 0 is no bound
	pattern              string   // of a text
	minItems, maxItems   int      // of a list
	items                []any    // all values of a list's elements
	itemMin, itemMax     *float64 // of a list's numbers
	short                any      // schema of another spelling of a table
	zero                 bool     // 0 is the default, and says something
	noDefault            bool     // the default depends on other keys
}

// at returns the rule for the key at the path.
func (r schemaRule) at(path string) schemaRule {
	switch {
	case path == "defaults.kind": // trainings and rollouts need a config of their own
		r.enum = []any{KindBatch}
	case strings.HasSuffix(path, "body_model") && strings.HasPrefix(path, "engine"):
		r.short = nil // a server has names for models, and no rows
	case strings.HasPrefix(path, "cloud.") || strings.HasPrefix(path, "health.") || path == "worker.drain_budget":
		r.noDefault = r.noDefault || path == "cloud.fleet.instance_types" || !strings.HasPrefix(path, "cloud.")
	}
	return r
}

// element returns the rule of a list's elements.
func (r schemaRule) element() schemaRule {
	return schemaRule{enum: r.items, min: r.itemMin, max: r.itemMax, belowMax: r.belowMax, minLength: r.minLength,
		maxLength: r.maxLength, pattern: r.pattern, noDefault: true}
}

func (r schemaRule) list(out map[string]any) {
	if r.minItems > 0 {
		out["minItems"] = r.minItems
	}
	if r.maxItems > 0 {
		out["maxItems"] = r.maxItems
	}
}

func (r schemaRule) choices(out map[string]any) {
	if r.enum != nil {
		out["enum"] = r.enum
	}
}

func (r schemaRule) text(out map[string]any) {
	r.choices(out)
	if r.minLength > 0 {
		out["minLength"] = r.minLength
	}
	if r.maxLength > 0 {
		out["maxLength"] = r.maxLength
	}
	if r.pattern != "" {
		out["pattern"] = r.pattern
	}
}

func (r schemaRule) number(out map[string]any) {
	r.choices(out)
	low, high := "minimum", "maximum"
	if r.aboveMin {
		low = "exclusiveMinimum"
	}
	if r.belowMax {
		high = "exclusiveMaximum"
	}
	if r.min != nil {
		out[low] = *r.min
	}
	if r.max != nil {
		out[high] = *r.max
	}
}

// requiredKeys are the keys that a table must have.
var requiredKeys = map[reflect.Type][]string{
	reflect.TypeFor[Pool]():           {"name", "model"},
	reflect.TypeFor[Grade]():          {"name", "kind"},
	reflect.TypeFor[Mission]():        {"name"},
	reflect.TypeFor[Variant]():        {"name"},
	reflect.TypeFor[GraderService]():  {"url"},
	reflect.TypeFor[Plugin]():         {"path"},
	reflect.TypeFor[PluginManifest](): {"name", "version", "kind", "mode", "entry"},
	reflect.TypeFor[Cloud]():          {"provider", "region"},
	reflect.TypeFor[InferInput]():     {"glob"},
	reflect.TypeFor[InferOutput]():    {"dir"},
	reflect.TypeFor[SFT]():            {"base_model", "optimizer", "budget"},
	reflect.TypeFor[RM]():             {"base_model", "optimizer", "budget"},
	reflect.TypeFor[BaseModel]():      {"uri"},
	reflect.TypeFor[Optimizer]():      {"lr"},
	reflect.TypeFor[Budget]():         {"max_steps"},
}

// between is the rule of numbers from low to high.
func between(low, high float64) schemaRule { return schemaRule{min: &low, max: &high, zero: low <= 0} }

// from is the rule of numbers without an upper bound.
func from(low float64) schemaRule { return schemaRule{min: &low, zero: low <= 0} }

// over is the rule of numbers above low, up to high.
func over(low, high float64) schemaRule {
	return schemaRule{min: &low, max: &high, aboveMin: true}
}

// texts is the rule of one-line texts of at most n bytes.
func texts(n int) schemaRule { return schemaRule{maxLength: n} }

// named is the rule of names that label checks: at most n of a-z, 0-9, - and more.
func named(n int, more string) schemaRule {
	return schemaRule{minLength: 1, maxLength: n, pattern: "^[a-z0-9" + more + "-]*$"}
}

// choice is the rule of a text with fixed values.
func choice(values ...string) schemaRule {
	var r schemaRule
	for _, v := range values {
		r.enum = append(r.enum, v)
	}
	return r
}

// schemaRules returns the rules by type and key. Types and keys without a rule are as
// their Go type says.
func schemaRules() map[string]schemaRule {
	version := schemaRule{enum: []any{SchemaVersion}, noDefault: true}
	zero := schemaRule{zero: true}
	text, name := texts(maxText), texts(maxName)
	notNegative := from(0)
	seqLen := between(0, maxSeqLen)
	seed := from(0)
	textTable := map[string]any{"type": "string", "enum": []any{"override"}}
	tableOrText := schemaRule{short: map[string]any{"type": "string"}}
	tableOr := func(values ...string) schemaRule {
		return schemaRule{short: map[string]any{"type": "string", "enum": choice(values...).enum}}
	}
	priority := between(MinPriority, MaxPriority)
	priority.short = map[string]any{"type": "string", "enum": Priorities()}
	share := between(0, 1)
	return map[string]schemaRule{
		"Run.schema_version": version, "Deployment.schema_version": version, "Infer.schema_version": version,
		"Train.schema_version": version,
		"Grade.plugin":         {pattern: `^$|^[a-z0-9-]{1,32}$`},
		"Run.kind":             choice(Kinds()...), "Run.name": name,
		"Run.grade": {maxItems: maxGraders}, "Infer.grade": {maxItems: maxGraders},
		"Run.mission": {maxItems: maxMissions}, "Run.decode": {maxItems: maxDecodes}, "Run.variant": {maxItems: maxVariants},
		"Model.uri": text, "Model.revision": text, "Model.tokenizer": text,

		"Sampling.temperature": between(0, 2), "Sampling.top_p": over(0, 1), "Sampling.min_p": share,
		"Sampling.top_k":              between(-1, math.MaxInt32),
		"Sampling.repetition_penalty": over(0, 10),
		"Sampling.presence_penalty":   between(-2, 2), "Sampling.frequency_penalty": between(-2, 2),
		"Sampling.max_tokens": between(1, maxTokens), "Sampling.seed": seed,
		"Sampling.stop": {maxItems: MaxStopSequences, minLength: 1, maxLength: maxText},
		"Sampling.n":    between(1, MaxSamplingN), "Sampling.logprobs": between(0, maxLogprobs),
		"Sampling.stream": {enum: []any{false}},

		"Input.dialect":      choice("", "plain", "openai", "bedrock", "vertex"),
		"InferInput.dialect": choice("", "plain", "openai", "bedrock", "vertex"),
		"Input.max_unpacked": from(1), "Shard.items": between(0, MaxShardItems),
		"Facts.part_items":    between(0, maxPartItems),
		"Scheduling.priority": priority,
		"Shard.order":         choice("", OrderInput, OrderPrefix), "Limits.deadline": zero,
		"Limits.tokens": notNegative, "Limits.dollars": between(0, maxDollars), "Limits.failures": between(1, maxFailures),
		"Limits.failed_shards_in_a_row": notNegative,
		"Limits.failed_share":           {min: new(float64), max: pointer(1), belowMax: true, zero: true},

		"Request.endpoint": {maxLength: maxText,
			pattern: "^(|/.*|" + strings.Join(Endpoints(), "|") + ")$"},
		"Request.omit":             {maxItems: maxRequestNames, minLength: 1, maxLength: maxName},
		"Request.max_tokens_field": {maxLength: maxName, pattern: "^(|max_.*|n_predict)$"},
		"Request.body_model":       {short: textTable},

		"PluginManifest.name": named(maxGraderName, ""), "PluginManifest.version": {minLength: 1, maxLength: maxOption},
		"PluginManifest.kind": choice(PluginKinds()...), "PluginManifest.mode": choice(PluginModes()...),
		"PluginManifest.trait_id":          {pattern: `^$|^rollout\.[a-z-]+\.v1$`},
		"PluginManifest.network_allowlist": {maxItems: maxPluginHosts, maxLength: maxText},
		"PluginRuntime.memory_mb":          between(minPluginMemory, maxPluginMemory),
		"PluginRuntime.processes":          between(1, maxPluginProcesses),
		"PluginSidecarEntry.args":          {maxItems: maxPluginArgs, maxLength: maxText},
		"Plugin.path":                      {minLength: 1, maxLength: maxText}, "Plugin.version": texts(maxOption),
		"Plugin.content_id": {pattern: "^$|^[0-9a-f]{64}$"}, "Plugin.batch": between(1, maxGraderBatch),
		"Plugin.concurrency": between(1, maxGraderConcurrency), "Plugin.retries": between(0, maxGraderRetries),
		"Grade.name": named(maxGraderName, "_"), "Grade.kind": choice(GradeKinds()...), "Grade.weight": between(0, maxWeight),
		"Grade.pick": choice("", PickFirst, PickLast), "Grade.expected": texts(maxMemberPath),
		"Grade.extract": texts(maxPattern), "Grade.pattern": texts(maxPattern), "Grade.schema": texts(maxSchema),
		"Grade.tolerance": between(0, 1e300), "Grade.relative_tolerance": share,
		"Grade.choices": {minItems: 2, maxItems: maxOptions, minLength: 1, maxLength: maxOption},
		"Grade.labels":  {minItems: 2, maxItems: maxOptions, minLength: 1, maxLength: maxOption},
		"Grade.range":   {minItems: 2, maxItems: 2}, "Grade.label_scores": {itemMin: new(float64), itemMax: pointer(1)},
		"Grade.system": texts(maxJudgeText), "Grade.prompt": texts(maxJudgeText), "Grade.rubric": texts(maxJudgeText),
		"Grade.model": text,

		"Rollout.seed": seed, "Rollout.epochs": between(1, maxEpochs), "Rollout.system": texts(maxPromptText),
		"Rollout.prompt": {minLength: 1, maxLength: maxPromptText}, "Mission.name": named(maxGraderName, "_"),
		"Mission.scaffold":   texts(maxPromptText),
		"Mission.entries":    {maxItems: maxEntries, minLength: 1, maxLength: maxText},
		"Decode.temperature": between(0, 2), "Decode.top_p": over(0, 1), "Decode.max_tokens": between(1, maxTokens),
		"Decode.stop": {maxItems: MaxStopSequences, minLength: 1, maxLength: maxText}, "Decode.seed": seed,
		"Decode.samples": {min: new(float64), max: pointer(MaxMembers)}, "Answer.pattern": texts(maxPattern),
		"Answer.schema": texts(maxSchema), "Answer.member": texts(maxMemberPath),
		"Answer.verdicts":           {maxItems: maxVerdicts, minLength: 1, maxLength: maxOption},
		"Runner.rollout_batch_size": between(1, maxBatchItems), "Runner.parallelism": between(0, maxBatchItems),
		"Runner.max_replacements": between(0, MaxTickets),
		"Runner.on_interrupt":     choice("", InterruptKeep, InterruptRestart),
		"Selection.policy":        choice(SelectVote, SelectLabel, SelectScore), "Selection.review_below": share,
		"Reflection.batch_size": between(1, maxReflectionBatch), "Reflection.candidates": between(1, maxCandidates),
		"Reflection.pareto": between(0, maxPareto), "Reflection.model": text,
		"Reflection.max_entries":     between(1, maxEntries),
		"Reflection.max_entry_bytes": between(20, maxText), "Reflection.max_tokens": between(10, maxGuidanceTokens),
		"Reflection.max_operations": between(1, maxPlanOperations), "Reflection.stop_after": between(1, maxFailures),
		"Gate.share": over(0, maxAside), "Gate.holdout_share": between(0, 0.5), "Gate.tickets": between(2, maxGateTickets),
		"Gate.alpha": over(0, 0.5), "Gate.resamples": between(1, 1_000_000), "Gate.min_tickets": between(0, maxGateTickets),
		"Gate.min_gain": share, "Gate.max_broken": share,

		"Design.replications": between(1, maxReplications), "Design.seed": seed,
		"Design.order":           choice(TrialsByTask, TrialsByVariant, TrialsInterleaved, TrialsRandom),
		"Design.max_concurrency": between(0, MaxTrials), "Design.chain": texts(maxMemberPath),
		"Pruning.rule":  choice(PruneOff, PruneFixed, PruneRace, PruneHalving),
		"Pruning.looks": between(0, maxLooks), "Pruning.min_tasks": between(2, MaxTrials), "Pruning.alpha": over(0, 0.5),
		"Pruning.spending": choice(SpendEvenly, SpendLate), "Pruning.test": choice(TestAuto, TestWilcoxon, TestMcNemar),
		"Pruning.below": between(-maxWeight, maxWeight), "Pruning.eta": between(2, maxEta),
		"Pruning.grader": texts(maxGraderName),
		"Variant.name":   named(maxGraderName, "_"), "Variant.system": texts(maxPromptText), "Variant.model": text,
		"Variant.prompt": texts(maxPromptText), "Variant.max_parallel_trials": between(0, MaxTrials),

		"Variant.command": {maxItems: maxCommand, maxLength: maxText}, "Variant.artifact": {maxLength: maxText},
		"Variant.env": {maxLength: maxText}, "Variant.shows": {maxItems: maxShows, minLength: 1, maxLength: maxMemberPath},
		"AgentLimits.seconds":   between(1, maxAgentSeconds),
		"AgentLimits.memory_mb": between(minAgentMemory, maxAgentMB), "AgentLimits.disk_mb": between(1, maxAgentMB),
		"AgentLimits.output_mb": between(1, maxAgentMB), "AgentLimits.files": between(1, maxAgentFiles),
		"AgentLimits.processes":           between(1, maxAgentCount),
		"AgentLimits.concurrent_requests": between(1, maxAgentCount),
		"AgentLimits.requests":            between(0, maxTokens), "AgentLimits.tokens": between(0, maxTokens),
		"AgentLimits.dollars": between(0, maxDollars), "Trials.at_once": between(0, maxAtOnce),

		"Algorithm.kind": choice(AlgorithmSFT, AlgorithmRM),
		"SFT.base_model": tableOrText, "RM.base_model": tableOrText, "RM.head": tableOr(HeadBradleyTerry),
		"SFT.loss_on": tableOr(LossAssistantOnly, LossFull), "SFT.packing": tableOr(PackingOff, PackingOn),
		"SFT.minibatch_size": between(1, maxMinibatch), "RM.minibatch_size": between(1, maxMinibatch),
		"SFT.gradient_accumulation": between(1, maxAccumulation), "RM.gradient_accumulation": between(1, maxAccumulation),
		"SFT.seed": seed, "RM.seed": seed, "RM.max_seq_len": seqLen, "Packing.max_seq_len": seqLen,
		"LossOn.kind": choice(LossAssistantOnly, LossFull), "Packing.kind": choice(PackingOff, PackingOn),
		"Head.kind": choice(HeadBradleyTerry), "Dataset.kind": choice(DatasetJSONL), "Dataset.path": text,
		"Optimizer.kind": choice(OptimizerSGD, OptimizerAdamW), "Optimizer.lr": over(0, maxLR),
		"Optimizer.weight_decay": share,
		"Optimizer.betas":        {minItems: 2, maxItems: 2, itemMin: new(float64), itemMax: pointer(1), belowMax: true},
		"Optimizer.eps":          over(0, 1), "Optimizer.warmup_steps": between(0, maxSteps),
		"Optimizer.schedule":      choice(ScheduleConstant, ScheduleLinear, ScheduleCosine),
		"Optimizer.max_grad_norm": between(0, maxNorm), "Budget.max_steps": between(1, maxSteps),
		"Snapshots.every_steps": between(0, maxSteps), "Snapshots.keep_last": between(1, maxKeepLast),
		"TrainStorage.backend": choice("", "embedded"),

		"InferInput.glob": {minLength: 1, maxLength: maxText}, "InferOutput.dir": {minLength: 1, maxLength: maxText},
		"Online.share": share, "Online.queue": between(0, maxOnlineQueue),
		"Online.max_wait":   zero,
		"InferStorage.path": text, "InferStorage.keep_work": choice(KeepWorkIndex, KeepWorkAll),
		"InferWorkers.count": between(1, maxWorkers),

		"Notify.webhook": text, "Notify.secret": named(maxSecret, ""),
		"WorkStorage.keep_work": choice(KeepWorkIndex, KeepWorkAll), "WorkStorage.keep_documents": zero,
		"Deployment.secrets": named(maxSecret, ""), "Engine.urls": {maxItems: maxServers},
		"Engine.stream": choice("", StreamAuto, StreamAlways, StreamNever), "Engine.in_flight": between(0, maxInFlight),
		"Engine.prompt_price": between(0, maxPrice), "Engine.completion_price": between(0, maxPrice),
		"Engine.ready":         {pattern: "^(|auto|none|/.*)$", maxLength: maxText},
		"Worker.in_flight":     between(0, maxInFlight),
		"Worker.min_in_flight": between(1, maxInFlight), "Worker.max_in_flight": between(1, maxInFlight),
		"Worker.request_timeout": zero, "Pool.name": named(maxPool, ""), "Pool.model": {minLength: 1, maxLength: maxText},
		"Pool.revision": text, "Pool.executor": choice("", ExecutorInfer, ExecutorTrain, ExecutorPipeline),
		"Pipeline.stage": choice(StageText, StageLatent), "Pipeline.ranks": between(1, maxRanks),
		"Pipeline.recompute":       choice(RecomputeOff, RecomputeContext, RecomputeLatent),
		"Pool.machines":            choice("", MachinesGroup, MachinesCloudRun),
		"Pool.provisioning":        choice("", ProvisioningSpot, ProvisioningFlexStart, ProvisioningStandard),
		"Pool.price":               between(0, maxPrice),
		"Pool.requests_per_minute": between(0, maxPerMinute), "Pool.tokens_per_minute": between(0, maxPerMinute),
		"PoolMachines.instance_types":  {noDefault: true},
		"PoolMachines.server":          choice(append([]string{""}, servers.Names()...)...),
		"PoolMachines.engine_image":    {pattern: "^$|" + imageName.String()},
		"PoolMachines.engine_args":     {maxItems: maxEngineArgs, maxLength: maxEngineText},
		"PoolMachines.tokenizer":       text,
		"PoolMachines.tensor_parallel": between(0, maxTensorParallel),
		"PoolMachines.disk_gb":         between(0, maxDiskGB),
		"PoolMachines.disk_throughput": between(0, maxDiskThroughput),
		"PoolMachines.max_price":       between(0, maxMachinePrice),
		"PoolMachines.on_demand_base":  between(0, maxMachines),
		"PoolMachines.on_demand_share": share,

		"GraderService.batch": between(1, maxGraderBatch), "GraderService.concurrency": between(1, maxGraderConcurrency),
		"GraderService.retries": between(0, maxGraderRetries), "Cloud.provider": choice(Providers()...),
		"Cloud.name": {pattern: cloudName.String()}, "Fleet.max_machines": between(1, maxMachines),
		"Fleet.shards_per_machine": between(1, maxShardsEach), "Fleet.engine_image": {pattern: imageName.String()},
		"Fleet.instance_types": {minItems: 1}, "CloudSecrets.allowlist": named(maxSecret, ""),
	}
}

func pointer(x float64) *float64 { return &x }
