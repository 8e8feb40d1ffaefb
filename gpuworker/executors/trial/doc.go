// Package trial runs one trial whose agent is a program: it gets a task and a model, and leaves
// a result.
//
//	task.json ┐                                        ┌─▶ /out/result.json ─▶ answer, result
//	artifact  ├─▶ /work ─▶ the program in its sandbox ─┤
//	            model ◀─ proxy ◀─ OPENAI_BASE_URL ──┘  └─▶ /out/grade.json  ─▶ scores
//
// Three kinds of ends are told apart, because they mean different things in a comparison:
//
//   - Answered and Limited are the agent's: they have a score. An agent that uses up its time,
//     memory, tokens or dollars has failed the task.
//   - ResultError and GradeError are the agent's, too: it has left nothing that can be read.
//   - Infrastructure is ours, and says nothing about the agent: no sandbox, no model.
//
// What a task expects never comes here: graders compare it with the result afterwards.
package trial
