package stack

import (
	"slices"

	"rollout/shared/host"
	"rollout/shared/record"
)

// users makes the policies for people who work with the installation: one to
// look, and one to submit and to steer as well. The doctor needs more, as it
// tries what functions and machines do: it is for who deploys.
func (b *builder) users() {
	look := b.viewerGrants()
	reader := b.policy("Reader", "reader", "rollout: see runs, and fetch their results", look)
	user := b.policy("User", "user", "rollout: submit and steer runs, see them, and fetch their results", slices.Concat(look, b.operatorGrants()))
	b.output("ReaderPolicy", "Attach it to who may see runs and fetch their results", reader.ManagedPolicyArn())
	b.output("UserPolicy", "Attach it to who may submit and steer runs as well", user.ManagedPolicyArn())
}

// viewerGrants is what status, explain, results and bundle need.
func (b *builder) viewerGrants() []grant {
	return join(
		b.read(record.PromptsPrefix, record.WorkPrefix, record.RunsPrefix), b.enumerate(record.PromptsPrefix, record.RunsPrefix), b.versioning(),
		b.load(), b.list(runs, beats), b.measureAll())
}

// operatorGrants is what submit, pause, resume and stop need beside that.
func (b *builder) operatorGrants() []grant {
	return join(
		b.put(record.PromptsPrefix), b.invoke(submit), // which is told of prompts whose event is late
		b.save(others), b.send(host.CoordinateQueue))
}
