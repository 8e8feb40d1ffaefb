package openai

import (
	"net/http"
	"slices"

	"rollout/shared/fault"
)

// Model is a model as OpenAI's API describes it.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func model(name string) Model { return Model{ID: name, Object: "model", OwnedBy: "rollout"} }

// listModels lists the models of the deployment's pools.
func (s *Server) listModels(*http.Request) (any, error) {
	l := list[Model]{Object: "list", Data: []Model{}}
	for _, name := range s.models {
		l.Data = append(l.Data, model(name))
	}
	return l, nil
}

func (s *Server) getModel(r *http.Request) (any, error) {
	name := r.PathValue("id")
	if !slices.Contains(s.models, name) {
		return nil, fault.New(fault.NotFound, "no pool has the model %.80q", name)
	}
	return model(name), nil
}
