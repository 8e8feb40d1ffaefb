package poolcheck

import (
	"context"

	"rollout/shared/config"
	"rollout/shared/core/modelsize"
	"rollout/shared/core/servers"
	"rollout/shared/hub"
	"rollout/shared/models"
)

// findGGUF returns how large the files are that llama.cpp takes of a pool's model of the
// hub. A config beside them is that of a larger format, so nothing else is known. If
// nothing is, why says why.
func (m Models) findGGUF(ctx context.Context, p config.Pool) (model *modelsize.Model, why string) {
	if !OfHub(p) {
		return nil, "how large it is stands in its .gguf file alone"
	}
	if servers.NamesGGUF(p.EngineArgs, p.EngineEnv) {
		return nil, "engine_args or engine_env name its file"
	}
	found, err := hub.Hub{URL: m.Hub, Token: m.Token, Client: m.Client}.Find(ctx, p.HubName(), p.Revision)
	if err != nil {
		return nil, err.Error()
	}
	paths, sizes := make([]string, 0, len(found.Files)), map[string]int64{}
	for _, f := range found.Files {
		paths = append(paths, f.Path)
		sizes[f.Path] = f.Size
	}
	_, tag := models.SplitTag(p.Model)
	files, ok := servers.PickGGUF(paths, tag)
	if !ok {
		return nil, "the hub has no .gguf file of it that llama.cpp takes for this tag"
	}
	model = &modelsize.Model{}
	for _, path := range files.Files() {
		model.WeightBytes += float64(sizes[path])
	}
	return model, ""
}
