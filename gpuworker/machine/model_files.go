package machine

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"rollout/shared/core/servers"
	"rollout/shared/fault"
)

// AddModelFiles adds the files of a model that was fetched from the bucket to the variables
// of llama.cpp's servers, below the root of the machine's file system. Call it after the
// units are written.
func AddModelFiles(root string, g servers.GGUF) error {
	f, err := os.OpenFile(filepath.Join("/", root, poolVars), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "name the model's files")
	}
	_, err = fmt.Fprintf(f, "%s=%s\n", servers.LlamaCppModel, path.Join(inContainer, g.Model[0]))
	if err == nil && g.Projector != "" {
		_, err = fmt.Fprintf(f, "%s=%s\n", servers.LlamaCppProjector, path.Join(inContainer, g.Projector))
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return fault.WithKind(fault.Invalid, err, "name the model's files")
}
