package stack

import (
	"slices"

	"rollout/shared/host"
	"rollout/shared/record"
)

// userPolicies adds the managed policies for people who work with the
// installation: one to see runs, and one to submit and steer them as well.
// `rollout cloud doctor` needs more, because it tries what functions and
// machines do: it is for the person who deploys.
func (b *builder) userPolicies() {
	look := b.viewerGrants()
	reader := b.policy("Reader", "reader", "rollout: see runs, and fetch their results", look)
	user := b.policy(
		"User",
		"user",
		"rollout: submit and steer runs, see them, and fetch their results",
		slices.Concat(look, b.operatorGrants()),
	)
	b.output("ReaderPolicy", "Attach it to who may see runs and fetch their results", reader.ManagedPolicyArn())
	b.output("UserPolicy", "Attach it to who may submit and steer runs as well", user.ManagedPolicyArn())
}

// viewerGrants returns the statements that status, explain, results and bundle
// need.
func (b *builder) viewerGrants() []grant {
	return join(
		b.readObjects(record.PromptsPrefix, record.WorkPrefix, record.RunsPrefix, record.ModelsPrefix),
		b.listObjects(record.PromptsPrefix, record.RunsPrefix, record.ModelsPrefix), // models: for `rollout model list`
		b.readOwner(),
		b.readVersioning(),
		b.readDocuments(),
		b.queryDocuments(runs, open, ended, found, names, beats),
		b.measureAllQueues(),
	)
}

// operatorGrants returns the statements that submit, pause, resume, stop, promote and model cache need
// in addition to viewerGrants.
func (b *builder) operatorGrants() []grant {
	return join(
		b.putObjects(record.PromptsPrefix, record.RunsPrefix+"*/guidance/", record.ModelsPrefix),
		b.invokeFunctions(submit), // if the event of an uploaded file is late
		b.writeDocuments(others),
		b.sendMessages(host.CoordinateQueue),
	)
}
