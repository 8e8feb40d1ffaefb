package api

import (
	_ "embed"
	"encoding/json"
	"net/http"
)

// openAPI describes the endpoints in the form of OpenAPI 3.1. A test makes its schemas from the
// types of the answers, and holds it to the handlers.
//
//go:embed openapi.json
var openAPI []byte

// openAPIPath needs no token: the description holds no data.
const openAPIPath = "/v1/openapi.json"

func (s *Service) getOpenAPI(*http.Request) (int, any, error) {
	return http.StatusOK, json.RawMessage(openAPI), nil
}
